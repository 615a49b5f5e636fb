// Runs in the audio thread. The player says every 50 ms what it has really played; the recorder sends 20 ms at a time.

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.played = { item: null, samples: 0 };
    this.port.onmessage = ({ data }) => {
      if (data.clear) { this.report(); this.queue = []; this.rest(); } else { this.queue.push({ ...data, at: 0 }); }
    };
  }
  process(_, [[out]]) {
    let place = 0;
    while (place < out.length && this.queue.length) {
      const first = this.queue[0];
      if (first.item !== this.played.item) { this.report(); this.played = { item: first.item, samples: 0 }; }
      const count = Math.min(out.length - place, first.samples.length - first.at);
      for (let i = 0; i < count; i++) out[place + i] = first.samples[first.at + i] / 32768;
      place += count;
      first.at += count;
      this.played.samples += count;
      if (first.at === first.samples.length) this.queue.shift();
    }
    if (this.played.samples >= 1200 || (this.played.samples && !this.queue.length)) this.report();
    if (place && !this.queue.length) this.rest();
    return true;
  }
  rest() { this.port.postMessage({ idle: true }); }
  report() {
    const { item, samples } = this.played;
    if (item && samples) this.port.postMessage({ item, ms: samples / 24 });
    this.played = { item, samples: 0 };
  }
}

class Recorder extends AudioWorkletProcessor {
  constructor() { super(); this.frame = new Int16Array(480); this.filled = 0; }
  process([[input]]) {
    for (const value of input ?? []) {
      this.frame[this.filled++] = Math.max(-1, Math.min(1, value)) * 32767;
      if (this.filled === this.frame.length) {
        this.port.postMessage(this.frame.buffer, [this.frame.buffer]);
        this.frame = new Int16Array(480);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("player", Player);
registerProcessor("recorder", Recorder);
