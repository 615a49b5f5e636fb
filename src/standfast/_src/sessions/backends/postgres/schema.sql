-- The OpenAI Agents SDK's tables as its SQLAlchemySession makes them, nullable columns and one index beside, and tables
-- of ours. {s} {m}: its tables. {own}: what names of ours begin with. Each is quoted, with its schema if there is one.
CREATE TABLE IF NOT EXISTS {s} (
  session_id VARCHAR PRIMARY KEY,
  created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE IF NOT EXISTS {m} (
  id SERIAL PRIMARY KEY,
  session_id VARCHAR NOT NULL REFERENCES {s} (session_id) ON DELETE CASCADE,
  message_data TEXT NOT NULL,
  created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS {time_index} ON {m} (session_id, created_at);
ALTER TABLE {s} ADD COLUMN IF NOT EXISTS standfast_epoch TEXT;
ALTER TABLE {m} ADD COLUMN IF NOT EXISTS standfast_place BIGINT, ADD COLUMN IF NOT EXISTS standfast_writer BYTEA,
  ADD COLUMN IF NOT EXISTS standfast_ordinal BIGINT, ADD COLUMN IF NOT EXISTS standfast_replaces INTEGER;
CREATE INDEX IF NOT EXISTS {place_index} ON {m} (session_id, standfast_place);

-- What is known of a name besides its rows and cells. `place`: the highest that was ever given. `next_epoch`: the
-- incarnation of cells that were written before the session was. `seq`: newest change first; NULL if never changed.
CREATE SEQUENCE IF NOT EXISTS {own}seq";
CREATE TABLE IF NOT EXISTS {own}names" (
  kind TEXT NOT NULL, id TEXT NOT NULL, edition BIGINT NOT NULL DEFAULT 0, place BIGINT NOT NULL DEFAULT 0,
  next_epoch TEXT, epoch TEXT, seq BIGINT, created TIMESTAMPTZ, updated TIMESTAMPTZ, labels JSONB,
  PRIMARY KEY (kind, id)
);
CREATE INDEX IF NOT EXISTS {seq_index} ON {own}names" (kind, seq);
CREATE INDEX IF NOT EXISTS {label_index} ON {own}names" ((labels ->> 'session'), seq);
CREATE INDEX IF NOT EXISTS {server_index} ON {own}names" ((labels ->> 'conversation'), seq)
  WHERE labels ->> 'conversation' IS NOT NULL;
CREATE TABLE IF NOT EXISTS {own}cells" (
  kind TEXT NOT NULL, id TEXT NOT NULL, name BYTEA NOT NULL, epoch TEXT NOT NULL, value BYTEA NOT NULL,
  PRIMARY KEY (kind, id, name)
);
CREATE TABLE IF NOT EXISTS {own}boxes" (
  id TEXT NOT NULL, box INTEGER NOT NULL, place BIGINT NOT NULL, message_data TEXT NOT NULL,
  writer BYTEA, ordinal BIGINT, replaces INTEGER, PRIMARY KEY (id, box, place)
);

-- The live rows of a session with their refs. What another program wrote has no place yet and counts on from the highest
-- that was given; it gets that place with our next write.
CREATE OR REPLACE FUNCTION {own}rows"(p TEXT) RETURNS TABLE (ref BIGINT, row_id INTEGER) LANGUAGE sql STABLE AS $f$
  SELECT coalesce(m.standfast_place, n.place + row_number() OVER (PARTITION BY m.standfast_place IS NULL ORDER BY m.id)), m.id
  FROM {m} m CROSS JOIN (SELECT coalesce((SELECT place FROM {own}names" WHERE kind = 'session' AND id = p), 0) AS place) n
  WHERE m.session_id = p
$f$;

-- Where the rows end. Other programs remove the newest row or all of them, and a place is never given twice: the last
-- one vouches for everything before it. What others wrote since is told by its ids.
CREATE OR REPLACE FUNCTION {own}mark"(p TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE AS $f$
DECLARE last BIGINT; k BIGINT; h TEXT;
BEGIN
  SELECT max(standfast_place) INTO last FROM {m} WHERE session_id = p;
  SELECT count(*), md5(string_agg(id::text, ',' ORDER BY id)) INTO k, h
    FROM {m} WHERE session_id = p AND standfast_place IS NULL;
  IF last IS NULL AND k = 0 THEN RETURN ''; END IF;
  RETURN coalesce((SELECT edition FROM {own}names" WHERE kind = 'session' AND id = p), 0) || '.' || coalesce(last, 0)
    || '.' || k || '.' || coalesce(h, '');
END $f$;

-- The ref of the last row a mark covers; NULL if anything up to it has changed.
CREATE OR REPLACE FUNCTION {own}upto"(p TEXT, p_mark TEXT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $f$
DECLARE part TEXT[] := string_to_array(p_mark, '.'); last BIGINT; h TEXT; given BIGINT;
BEGIN
  IF p_mark = '' THEN RETURN 0; END IF;
  IF array_length(part, 1) IS DISTINCT FROM 4 OR p_mark !~ '^[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,18}\.' THEN RETURN NULL; END IF;
  SELECT place INTO given FROM {own}names" WHERE kind = 'session' AND id = p AND edition = part[1]::bigint;
  IF given IS NULL THEN
    IF part[1] <> '0' OR EXISTS (SELECT 1 FROM {own}names" WHERE kind = 'session' AND id = p) THEN RETURN NULL; END IF;
    given := 0;
  END IF;
  last := part[2]::bigint;
  IF last > 0 AND NOT EXISTS (SELECT 1 FROM {m} WHERE session_id = p AND standfast_place = last) THEN RETURN NULL; END IF;
  IF part[3] = '0' THEN RETURN last; END IF;
  SELECT md5(string_agg(x.id::text, ',' ORDER BY x.n)), max(coalesce(x.standfast_place, given + x.unplaced)) INTO h, last FROM (
    SELECT m.id, m.standfast_place, row_number() OVER (ORDER BY m.standfast_place NULLS LAST, m.id) AS n,
      count(*) FILTER (WHERE m.standfast_place IS NULL) OVER (ORDER BY m.standfast_place NULLS LAST, m.id) AS unplaced
    FROM {m} m WHERE m.session_id = p AND (m.standfast_place > last OR m.standfast_place IS NULL)
    ORDER BY m.standfast_place NULLS LAST, m.id LIMIT part[3]::bigint) x;
  IF h IS DISTINCT FROM part[4] THEN RETURN NULL; END IF;
  RETURN last;
END $f$;

-- One look. It is STABLE, so everything in it is seen at the instant of the calling statement.
CREATE OR REPLACE FUNCTION {own}look"(
  p_kind TEXT, p TEXT, p_cells BYTEA[], p_prefixes BYTEA[], p_rows JSONB, p_writers BYTEA[], p_upto TEXT, p_mark BOOLEAN,
  p_count BOOLEAN, OUT mark TEXT, OUT epoch TEXT, OUT created FLOAT8, OUT updated FLOAT8, OUT now_ FLOAT8, OUT labels JSONB, OUT upto BIGINT,
  OUT names BYTEA[], OUT epochs TEXT[], OUT vals BYTEA[],
  OUT lists INTEGER[], OUT refs BIGINT[], OUT texts TEXT[], OUT writers BYTEA[], OUT ordinals BIGINT[], OUT replaces INTEGER[],
  OUT ats FLOAT8[], OUT live BIGINT
) LANGUAGE plpgsql STABLE AS $f$
DECLARE n {own}names"%ROWTYPE; s {s}%ROWTYPE; want JSONB; list INTEGER := 0;
  f_refs BIGINT[]; f_texts TEXT[]; f_writers BYTEA[]; f_ordinals BIGINT[]; f_replaces INTEGER[]; f_ats FLOAT8[]; before BIGINT; most BIGINT; after_ BIGINT;
BEGIN
  SELECT * INTO n FROM {own}names" x WHERE x.kind = p_kind AND x.id = p;
  now_ := extract(epoch FROM clock_timestamp());
  IF p_kind = 'session' THEN
    SELECT * INTO s FROM {s} x WHERE x.session_id = p;
    epoch := coalesce(s.standfast_epoch, n.next_epoch, '');
    IF s.session_id IS NOT NULL THEN
      created := extract(epoch FROM CASE WHEN s.standfast_epoch IS NULL OR n.created IS NULL THEN s.created_at::timestamptz ELSE n.created END);
      updated := greatest(extract(epoch FROM n.updated), extract(epoch FROM s.updated_at::timestamptz), created);
    END IF;
    IF p_mark THEN mark := {own}mark"(p); END IF;
    IF p_upto IS NOT NULL THEN upto := {own}upto"(p, p_upto); END IF;
    IF p_count THEN SELECT count(*) INTO live FROM {m} x WHERE x.session_id = p; END IF;
  ELSE
    epoch := coalesce(n.epoch, n.next_epoch, '');
    IF n.epoch IS NOT NULL THEN
      created := extract(epoch FROM n.created); updated := extract(epoch FROM n.updated); labels := n.labels;
    END IF;
  END IF;
  IF p_cells IS NOT NULL OR p_prefixes IS NOT NULL THEN
    SELECT array_agg(c.name), array_agg(c.epoch), array_agg(c.value) INTO names, epochs, vals FROM {own}cells" c
      WHERE c.kind = p_kind AND c.id = p AND (c.name = ANY(p_cells) OR EXISTS (
        SELECT 1 FROM unnest(p_prefixes) q WHERE substring(c.name FROM 1 FOR length(q)) = q));
  END IF;
  FOR want IN SELECT * FROM jsonb_array_elements(p_rows) LOOP
    list := list + 1;
    before := coalesce((want ->> 'before')::bigint, 9223372036854775807);
    most := (want ->> 'limit')::bigint;
    after_ := (want ->> 'after')::bigint;
    f_ats := NULL;
    IF after_ IS NOT NULL THEN
      SELECT array_agg(y.ref ORDER BY y.ref), array_agg(y.message_data ORDER BY y.ref), array_agg(y.standfast_writer ORDER BY y.ref),
          array_agg(y.standfast_ordinal ORDER BY y.ref), array_agg(y.standfast_replaces ORDER BY y.ref),
          array_agg(extract(epoch FROM y.created_at::timestamptz)::float8 ORDER BY y.ref)
        INTO f_refs, f_texts, f_writers, f_ordinals, f_replaces, f_ats FROM (
          SELECT x.ref, m.message_data, m.standfast_writer, m.standfast_ordinal, m.standfast_replaces, m.created_at
          FROM (
            (SELECT m1.standfast_place AS ref, m1.id AS row_id FROM {m} m1 WHERE m1.session_id = p AND m1.standfast_place > after_
               ORDER BY m1.standfast_place LIMIT most)
            UNION ALL
            (SELECT coalesce(n.place, 0) + row_number() OVER (ORDER BY m2.id), m2.id FROM {m} m2
               WHERE m2.session_id = p AND m2.standfast_place IS NULL)
          ) x JOIN {m} m ON m.id = x.row_id WHERE x.ref > after_ ORDER BY x.ref LIMIT most) y;
    ELSIF (want ->> 'box')::integer = 0 THEN
      SELECT array_agg(y.ref ORDER BY y.ref), array_agg(y.message_data ORDER BY y.ref), array_agg(y.standfast_writer ORDER BY y.ref),
          array_agg(y.standfast_ordinal ORDER BY y.ref), array_agg(y.standfast_replaces ORDER BY y.ref),
          array_agg(extract(epoch FROM y.created_at::timestamptz)::float8 ORDER BY y.ref)
        INTO f_refs, f_texts, f_writers, f_ordinals, f_replaces, f_ats FROM (
          SELECT x.ref, m.message_data, m.standfast_writer, m.standfast_ordinal, m.standfast_replaces, m.created_at
          FROM (
            (SELECT m1.standfast_place AS ref, m1.id AS row_id FROM {m} m1 WHERE m1.session_id = p AND m1.standfast_place < before
               AND (p_writers[list] IS NULL OR m1.standfast_writer = p_writers[list])
               ORDER BY m1.standfast_place DESC LIMIT most)
            UNION ALL
            (SELECT coalesce(n.place, 0) + row_number() OVER (ORDER BY m2.id), m2.id FROM {m} m2
               WHERE m2.session_id = p AND m2.standfast_place IS NULL AND p_writers[list] IS NULL)
          ) x JOIN {m} m ON m.id = x.row_id WHERE x.ref < before ORDER BY x.ref DESC LIMIT most) y;
    ELSE
      SELECT array_agg(y.place ORDER BY y.place), array_agg(y.message_data ORDER BY y.place), array_agg(y.writer ORDER BY y.place),
          array_agg(y.ordinal ORDER BY y.place), array_agg(y.replaces ORDER BY y.place)
        INTO f_refs, f_texts, f_writers, f_ordinals, f_replaces FROM (
          SELECT b.* FROM {own}boxes" b WHERE b.id = p AND b.box = (want ->> 'box')::integer AND b.place < before
            AND (p_writers[list] IS NULL OR b.writer = p_writers[list]) ORDER BY b.place DESC LIMIT most) y;
    END IF;
    lists := lists || coalesce(array_length(f_refs, 1), 0);
    refs := refs || f_refs; texts := texts || f_texts; writers := writers || f_writers;
    ordinals := ordinals || f_ordinals; replaces := replaces || f_replaces;
    IF (want ->> 'times')::boolean THEN ats := ats || f_ats; END IF;
  END LOOP;
END $f$;

-- Give a place to what other programs wrote: behind what has one, in the order of ids. The SDK reads by created_at, then
-- id, so each gets a time above the one before it. Returns the last row's time.
CREATE OR REPLACE FUNCTION {own}adopt"(p TEXT) RETURNS TIMESTAMP LANGUAGE plpgsql AS $f$
DECLARE given BIGINT; last TIMESTAMP; k BIGINT;
BEGIN
  SELECT max(created_at) INTO last FROM (SELECT created_at FROM {m} WHERE session_id = p AND standfast_place IS NOT NULL
    ORDER BY standfast_place DESC LIMIT 1) x;
  IF NOT EXISTS (SELECT 1 FROM {m} WHERE session_id = p AND standfast_place IS NULL) THEN RETURN last; END IF;
  SELECT place INTO given FROM {own}names" WHERE kind = 'session' AND id = p;
  UPDATE {m} m SET standfast_place = given + x.rn, created_at = greatest(x.latest, last) + x.rn * interval '1 microsecond'
    FROM (SELECT id, row_number() OVER (ORDER BY id) AS rn, max(created_at) OVER (ORDER BY id) AS latest
          FROM {m} WHERE session_id = p AND standfast_place IS NULL) x WHERE m.id = x.id;
  GET DIAGNOSTICS k = ROW_COUNT;
  UPDATE {own}names" SET place = given + k WHERE kind = 'session' AND id = p;
  RETURN (SELECT created_at FROM {m} WHERE session_id = p AND standfast_place = given + k);
END $f$;

CREATE OR REPLACE FUNCTION {own}arrange"(p TEXT, a JSONB, p_texts TEXT[], p_writers BYTEA[], p_ordinals BIGINT[], p_replaces INTEGER[], p_args BYTEA[])
RETURNS VOID LANGUAGE plpgsql AS $f$
DECLARE part JSONB; base BIGINT; at BIGINT; t0 TIMESTAMP; here INTEGER; box_ INTEGER := (a ->> 'box')::integer; lo BIGINT; hi BIGINT;
  stands INTEGER; other TEXT;
BEGIN
  SELECT place INTO base FROM {own}names" WHERE kind = 'session' AND id = p;
  SELECT coalesce(max(created_at), clock_timestamp()::timestamp) INTO t0 FROM {m} WHERE session_id = p;
  at := base;
  IF box_ > 0 THEN
    DELETE FROM {own}boxes" WHERE id = p AND box = box_;
    FOR part IN SELECT * FROM jsonb_array_elements(a -> 'keep') LOOP
      lo := coalesce((part ->> 'after')::bigint, 0); hi := coalesce((part ->> 'upto')::bigint, 9223372036854775807);
      IF (part ->> 'box')::integer = 0 THEN
        INSERT INTO {own}boxes" SELECT p, box_, at + row_number() OVER (ORDER BY standfast_place), message_data, standfast_writer, standfast_ordinal, standfast_replaces
          FROM {m} WHERE session_id = p AND standfast_place > lo AND standfast_place <= hi;
      ELSE
        INSERT INTO {own}boxes" SELECT p, box_, at + row_number() OVER (ORDER BY b.place), b.message_data, b.writer, b.ordinal, b.replaces
          FROM {own}boxes" b WHERE b.id = p AND b.box = (part ->> 'box')::integer AND b.place > lo AND b.place <= hi;
      END IF;
      GET DIAGNOSTICS here = ROW_COUNT;
      at := at + here;
    END LOOP;
  END IF;
  FOR part IN SELECT * FROM jsonb_array_elements(a -> 'live') LOOP
    stands := (part ->> 'replaces')::integer;
    IF part ? 'new' THEN
      lo := (part -> 'new' ->> 0)::bigint; hi := (part -> 'new' ->> 1)::bigint;
      INSERT INTO {m} (session_id, message_data, created_at, standfast_place, standfast_writer, standfast_ordinal, standfast_replaces)
        SELECT p, x.data, t0, at + x.o, x.writer, x.ordinal, x.stands
        FROM unnest(p_texts[lo:hi], p_writers[lo:hi], p_ordinals[lo:hi], p_replaces[lo:hi]) WITH ORDINALITY x(data, writer, ordinal, stands, o);
    ELSE
      lo := coalesce((part ->> 'after')::bigint, 0); hi := coalesce((part ->> 'upto')::bigint, 9223372036854775807);
      other := CASE WHEN part ? 'of' THEN convert_from(p_args[(part ->> 'of')::integer], 'UTF8') ELSE p END;
      IF (part ->> 'box')::integer > 0 THEN
        INSERT INTO {m} (session_id, message_data, created_at, standfast_place, standfast_writer, standfast_ordinal, standfast_replaces)
          SELECT p, b.message_data, t0, at + row_number() OVER (ORDER BY b.place),
            CASE WHEN b.writer IS NULL AND stands > 0 THEN '' ELSE b.writer END, b.ordinal, coalesce(stands, b.replaces)
          FROM {own}boxes" b WHERE b.id = other AND b.box = (part ->> 'box')::integer AND b.place > lo AND b.place <= hi;
      ELSIF other = p THEN
        UPDATE {m} m SET standfast_place = at + x.rn, standfast_replaces = coalesce(stands, m.standfast_replaces),
            standfast_writer = CASE WHEN m.standfast_writer IS NULL AND stands > 0 THEN '' ELSE m.standfast_writer END
          FROM (SELECT id, row_number() OVER (ORDER BY standfast_place) AS rn FROM {m}
                WHERE session_id = p AND standfast_place > lo AND standfast_place <= least(hi, base)) x WHERE m.id = x.id;
      ELSE
        INSERT INTO {m} (session_id, message_data, created_at, standfast_place, standfast_writer, standfast_ordinal, standfast_replaces)
          SELECT p, m.message_data, t0, at + row_number() OVER (ORDER BY x.ref),
            CASE WHEN m.standfast_writer IS NULL AND stands > 0 THEN '' ELSE m.standfast_writer END, m.standfast_ordinal, coalesce(stands, m.standfast_replaces)
          FROM {own}rows"(other) x JOIN {m} m ON m.id = x.row_id WHERE x.ref > lo AND x.ref <= hi;
      END IF;
    END IF;
    GET DIAGNOSTICS here = ROW_COUNT;
    at := at + here;
  END LOOP;
  DELETE FROM {m} WHERE session_id = p AND standfast_place <= base;
  UPDATE {m} SET created_at = t0 + (standfast_place - base) * interval '1 microsecond' WHERE session_id = p;
  DELETE FROM {own}boxes" WHERE id = p AND box IN (SELECT jsonb_array_elements_text(a -> 'forget')::integer);
  UPDATE {own}names" SET place = at, edition = edition + 1 WHERE kind = 'session' AND id = p;
END $f$;

-- One step: conditions of every change, then the effects of every change. Strings are arguments, by number.
CREATE OR REPLACE FUNCTION {own}commit"(
  p_step JSONB, p_fresh TEXT, p_args BYTEA[], p_texts TEXT[], p_writers BYTEA[], p_ordinals BIGINT[], p_replaces INTEGER[],
  OUT refused INTEGER, OUT why TEXT, OUT marks TEXT[], OUT firsts BIGINT[],
  OUT epoch TEXT, OUT names BYTEA[], OUT epochs TEXT[], OUT vals BYTEA[]
) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE c JSONB; want JSONB; i INTEGER; k TEXT; p TEXT; v BYTEA; moment TIMESTAMPTZ; n {own}names"%ROWTYPE; e TEXT; there BOOLEAN;
  last TIMESTAMP; first BIGINT; count_ BIGINT; r RECORD; moves BOOLEAN; tail BOOLEAN; has BOOLEAN; born TIMESTAMPTZ;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'standfast needs READ COMMITTED: on another level this would decide on what it saw before' USING ERRCODE = '25001';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN  -- acknowledged means durable (A23)
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  -- Locks, in one order for everybody. Other programs' inserts wait at the session's row: their foreign key locks it.
  FOR k, p IN SELECT DISTINCT x ->> 'kind', convert_from(p_args[(x ->> 'id')::integer], 'UTF8') FROM jsonb_array_elements(p_step) x ORDER BY 1, 2 LOOP
    PERFORM 1 FROM {own}names" x WHERE x.kind = k AND x.id = p FOR UPDATE;
    IF NOT FOUND THEN
      INSERT INTO {own}names" (kind, id) VALUES (k, p) ON CONFLICT DO NOTHING;
      PERFORM 1 FROM {own}names" x WHERE x.kind = k AND x.id = p FOR UPDATE;
    END IF;
    IF k = 'session' THEN PERFORM 1 FROM {s} x WHERE x.session_id = p FOR UPDATE; END IF;
  END LOOP;
  i := 0;
  FOR c IN SELECT * FROM jsonb_array_elements(p_step) LOOP
    k := c ->> 'kind'; p := convert_from(p_args[(c ->> 'id')::integer], 'UTF8');
    FOR want IN SELECT * FROM jsonb_array_elements(c -> 'want') LOOP
      SELECT x.value INTO v FROM {own}cells" x WHERE x.kind = k AND x.id = p AND x.name = p_args[(want ->> 0)::integer];
      IF v IS DISTINCT FROM p_args[nullif((want ->> 1)::integer, 0)] THEN refused := i; why := 'cell'; END IF;
    END LOOP;
    -- A sum above its bound refuses as a cell does. The name is locked, so the sum stands until the cell is written below.
    FOR want IN SELECT * FROM jsonb_array_elements(c -> 'add') LOOP
      IF refused IS NULL AND (want ->> 2) IS NOT NULL AND (want ->> 1)::bigint + coalesce((SELECT convert_from(x.value, 'UTF8')::bigint
        FROM {own}cells" x WHERE x.kind = k AND x.id = p AND x.name = p_args[(want ->> 0)::integer]), 0) > (want ->> 2)::bigint
      THEN refused := i; why := 'cell'; END IF;
    END LOOP;
    IF refused IS NULL AND c ? 'mark' AND {own}mark"(p) <> convert_from(p_args[(c ->> 'mark')::integer], 'UTF8') THEN refused := i; why := 'mark'; END IF;
    IF refused IS NULL AND c ? 'prefix' AND {own}upto"(p, convert_from(p_args[(c ->> 'prefix')::integer], 'UTF8')) IS NULL THEN refused := i; why := 'mark'; END IF;
    IF refused IS NOT NULL THEN
      IF k = 'session' THEN
        marks := ARRAY[{own}mark"(p)];
        SELECT coalesce(x.standfast_epoch, y.next_epoch) INTO epoch FROM {own}names" y
          LEFT JOIN {s} x ON x.session_id = y.id WHERE y.kind = k AND y.id = p;
      ELSE
        SELECT coalesce(x.epoch, x.next_epoch) INTO epoch FROM {own}names" x WHERE x.kind = k AND x.id = p;
      END IF;
      SELECT array_agg(x.name), array_agg(x.epoch), array_agg(x.value) INTO names, epochs, vals FROM {own}cells" x
        WHERE x.kind = k AND x.id = p AND x.name = ANY (ARRAY(SELECT p_args[(w ->> 0)::integer] FROM jsonb_array_elements((c -> 'want') || coalesce(c -> 'add', '[]'::jsonb)) w));
      RETURN;
    END IF;
    i := i + 1;
  END LOOP;

  FOR c IN SELECT * FROM jsonb_array_elements(p_step) LOOP
    k := c ->> 'kind'; p := convert_from(p_args[(c ->> 'id')::integer], 'UTF8'); first := 0;
    moves := c ? 'drop' OR c ? 'arrange' OR c ? 'back' OR c ? 'push' OR c ? 'load' AND k = 'session';
    moment := clock_timestamp(); born := least(to_timestamp((c -> 'load' ->> 'created')::float8), moment);
    IF c ? 'remove' THEN
      DELETE FROM {own}cells" x WHERE x.kind = k AND x.id = p;
      DELETE FROM {own}names" x WHERE x.kind = k AND x.id = p;
      IF k = 'session' THEN
        DELETE FROM {m} WHERE session_id = p;
        DELETE FROM {s} WHERE session_id = p;
        DELETE FROM {own}boxes" WHERE id = p;
      END IF;
      marks := marks || ''::text; firsts := firsts || 0::bigint;
      CONTINUE;
    END IF;
    IF c ? 'wipe' THEN
      PERFORM {own}adopt"(p);
      DELETE FROM {m} WHERE session_id = p;
      DELETE FROM {s} WHERE session_id = p;
      DELETE FROM {own}boxes" WHERE id = p;
      DELETE FROM {own}cells" x WHERE x.kind = k AND x.id = p AND NOT EXISTS (
        SELECT 1 FROM jsonb_array_elements_text(c -> 'wipe') q WHERE substring(x.name FROM 1 FOR length(p_args[q::integer])) = p_args[q::integer]);
      UPDATE {own}names" SET edition = edition + 1, next_epoch = NULL, epoch = NULL, seq = NULL WHERE kind = k AND id = p;
    END IF;
    SELECT * INTO n FROM {own}names" x WHERE x.kind = k AND x.id = p;
    IF k = 'session' THEN
      SELECT x.standfast_epoch INTO e FROM {s} x WHERE x.session_id = p;
      there := FOUND; has := e IS NOT NULL;
      e := coalesce(e, n.next_epoch);
    ELSE
      e := coalesce(n.epoch, n.next_epoch); there := n.epoch IS NOT NULL; has := there;
    END IF;
    IF NOT has AND (c ? 'touch' OR c -> 'put' <> '[]'::jsonb OR c ? 'add') THEN
      e := coalesce(e, p_fresh);
      IF there THEN  -- into the session's own row, so that it ends when the SDK clears the session
        UPDATE {s} SET standfast_epoch = e WHERE session_id = p;
      END IF;
      UPDATE {own}names" SET next_epoch = CASE WHEN there THEN NULL ELSE e END WHERE kind = k AND id = p;
    END IF;
    IF c ? 'touch' THEN
      IF there THEN
        UPDATE {own}names" SET seq = nextval('{seq}'), updated = greatest(moment, updated + interval '1 microsecond') WHERE kind = k AND id = p;
        IF k = 'session' THEN
          UPDATE {s} SET standfast_epoch = e, updated_at = greatest(moment::timestamp, updated_at + interval '1 microsecond') WHERE session_id = p;
        END IF;
      ELSE
        IF k = 'session' THEN
          INSERT INTO {s} (session_id, created_at, updated_at, standfast_epoch) VALUES (p, born, moment, e)
            ON CONFLICT (session_id) DO UPDATE SET standfast_epoch = excluded.standfast_epoch;
          PERFORM 1 FROM {s} WHERE session_id = p FOR UPDATE;
        END IF;
        UPDATE {own}names" SET seq = nextval('{seq}'), created = born, updated = moment, next_epoch = NULL,
          epoch = CASE k WHEN 'session' THEN NULL ELSE e END WHERE kind = k AND id = p;
      END IF;
    ELSIF moves AND NOT there THEN
      INSERT INTO {s} (session_id, standfast_epoch) VALUES (p, coalesce(e, p_fresh)) ON CONFLICT DO NOTHING;  -- rows need it
    END IF;
    IF moves THEN
      last := {own}adopt"(p);
      IF c ? 'drop' THEN
        SELECT min(d::bigint) INTO first FROM jsonb_array_elements_text(c -> 'drop') d;
        -- From the first on: a list by itself is planned as a walk over the whole history.
        DELETE FROM {m} WHERE session_id = p AND standfast_place >= first
          AND standfast_place = ANY (ARRAY(SELECT d::bigint FROM jsonb_array_elements_text(c -> 'drop') d));
        -- A hole that no mark could tell of: none that was given out may hold any more.
        SELECT EXISTS (SELECT 1 FROM {m} WHERE session_id = p AND standfast_place > first) INTO tail;
        IF tail THEN UPDATE {own}names" SET edition = edition + 1 WHERE kind = k AND id = p; END IF;
        first := 0;
        SELECT created_at INTO last FROM {m} WHERE session_id = p ORDER BY standfast_place DESC LIMIT 1;
      END IF;
      IF c ? 'arrange' THEN
        PERFORM {own}arrange"(p, c -> 'arrange', p_texts, p_writers, p_ordinals, p_replaces, p_args);
        SELECT created_at INTO last FROM {m} WHERE session_id = p ORDER BY standfast_place DESC LIMIT 1;
      END IF;
      IF c ? 'back' THEN
        FOR r IN SELECT (b ->> 0)::bigint AS ref, (b ->> 1)::integer AS at FROM jsonb_array_elements(c -> 'back') b LOOP
          INSERT INTO {m} (session_id, message_data, created_at, standfast_place, standfast_writer, standfast_ordinal, standfast_replaces)
            SELECT p, p_texts[r.at], coalesce(before_ + (after_ - before_) / 2, before_ + interval '1 microsecond', after_ - interval '1 microsecond', moment::timestamp),
              r.ref, p_writers[r.at], p_ordinals[r.at], p_replaces[r.at]
            FROM (SELECT (SELECT created_at FROM {m} WHERE session_id = p AND standfast_place < r.ref ORDER BY standfast_place DESC LIMIT 1) AS before_,
                         (SELECT created_at FROM {m} WHERE session_id = p AND standfast_place > r.ref ORDER BY standfast_place LIMIT 1) AS after_) x;
        END LOOP;
        UPDATE {own}names" SET edition = edition + 1 WHERE kind = k AND id = p;
        SELECT created_at INTO last FROM {m} WHERE session_id = p ORDER BY standfast_place DESC LIMIT 1;
      END IF;
      IF c ? 'push' THEN
        -- By slices, here and below: to reach one text in a long array, all before it are walked over.
        i := (c -> 'push' ->> 0)::integer; count_ := (c -> 'push' ->> 1)::integer - i + 1;
        UPDATE {own}names" SET place = place + count_ WHERE kind = k AND id = p RETURNING place - count_ + 1 INTO first;
        INSERT INTO {m} (session_id, message_data, created_at, standfast_place, standfast_writer, standfast_ordinal, standfast_replaces)
          SELECT p, x.data, greatest(moment::timestamp, last + interval '1 microsecond') + (x.o - 1) * interval '1 microsecond',
            first + x.o - 1, x.writer, x.ordinal, x.stands
          FROM unnest(p_texts[i:i + count_ - 1], p_writers[i:i + count_ - 1], p_ordinals[i:i + count_ - 1], p_replaces[i:i + count_ - 1])
            WITH ORDINALITY x(data, writer, ordinal, stands, o);
      END IF;
      IF c ? 'load' THEN  -- what was kept elsewhere, with its times; each above the one before, as the SDK reads by them
        i := (c -> 'load' -> 'live' ->> 0)::integer; count_ := (c -> 'load' -> 'live' ->> 1)::integer - i + 1;
        UPDATE {own}names" SET place = place + count_ WHERE kind = k AND id = p RETURNING place - count_ INTO first;
        INSERT INTO {m} (session_id, message_data, created_at, standfast_place, standfast_writer, standfast_ordinal, standfast_replaces)
          SELECT p, x.data, greatest(to_timestamp(x.at)::timestamp, last + x.o * interval '1 microsecond'), first + x.o, x.writer, x.ordinal, x.stands
          FROM unnest(p_texts[i:i + count_ - 1], p_writers[i:i + count_ - 1], p_ordinals[i:i + count_ - 1], p_replaces[i:i + count_ - 1],
            ARRAY(SELECT t::float8 FROM jsonb_array_elements_text(c -> 'load' -> 'times') t)) WITH ORDINALITY x(data, writer, ordinal, stands, at, o);
        FOR r IN SELECT (b ->> 0)::integer AS box, (b ->> 1)::integer AS lo, (b ->> 2)::integer AS hi FROM jsonb_array_elements(c -> 'load' -> 'boxes') b LOOP
          INSERT INTO {own}boxes" SELECT p, r.box, x.o, x.data, x.writer, x.ordinal, x.stands
            FROM unnest(p_texts[r.lo:r.hi], p_writers[r.lo:r.hi], p_ordinals[r.lo:r.hi], p_replaces[r.lo:r.hi]) WITH ORDINALITY x(data, writer, ordinal, stands, o);
        END LOOP;
      END IF;
    END IF;
    IF c ? 'sweep' THEN
      DELETE FROM {own}cells" x WHERE x.kind = k AND x.id = p AND EXISTS (
        SELECT 1 FROM jsonb_array_elements_text(c -> 'sweep') q WHERE substring(x.name FROM 1 FOR length(p_args[q::integer])) = p_args[q::integer]);
    END IF;
    INSERT INTO {own}cells" SELECT k, p, p_args[(w ->> 0)::integer], e, p_args[(w ->> 1)::integer]
      FROM jsonb_array_elements(c -> 'put') w WHERE (w ->> 1)::integer > 0
      ON CONFLICT (kind, id, name) DO UPDATE SET epoch = excluded.epoch, value = excluded.value;
    IF c ? 'add' THEN
      INSERT INTO {own}cells" AS x SELECT k, p, p_args[(w ->> 0)::integer], e, convert_to(w ->> 1, 'UTF8') FROM jsonb_array_elements(c -> 'add') w
        ON CONFLICT (kind, id, name) DO UPDATE SET epoch = excluded.epoch,
          value = convert_to((convert_from(x.value, 'UTF8')::bigint + convert_from(excluded.value, 'UTF8')::bigint)::text, 'UTF8');
    END IF;
    DELETE FROM {own}cells" x WHERE x.kind = k AND x.id = p AND x.name = ANY (ARRAY(
      SELECT p_args[(w ->> 0)::integer] FROM jsonb_array_elements(c -> 'put') w WHERE (w ->> 1)::integer = 0));
    IF c ? 'labels' THEN
      UPDATE {own}names" SET labels = convert_from(p_args[(c ->> 'labels')::integer], 'UTF8')::jsonb WHERE kind = k AND id = p;
    END IF;
    marks := marks || CASE WHEN k <> 'session' THEN '' ELSE {own}mark"(p) END;
    firsts := firsts || coalesce(first, 0);
  END LOOP;
END $f$;

-- The step that every turn makes, in a quarter of the statements: rows behind the others, and cells. NULL where it is not
-- that simple (the first write, rows of other programs without a place, a condition that does not hold): nothing was done
-- then, and the function above decides. A session that was changed last keeps its number, and with it every index entry.
CREATE OR REPLACE FUNCTION {own}append"(
  p TEXT, p_wants BYTEA[], p_wanted BYTEA[], p_puts BYTEA[], p_put BYTEA[], p_texts TEXT[], p_writers BYTEA[], p_ordinals BIGINT[],
  p_replaces INTEGER[], OUT mark TEXT
) LANGUAGE plpgsql AS $f$
#variable_conflict use_column
DECLARE h RECORD; l RECORD; moment TIMESTAMPTZ; before TIMESTAMP; tick CONSTANT INTERVAL := interval '1 microsecond';
  added CONSTANT INTEGER := array_length(p_texts, 1);
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') = 'off' THEN RETURN; END IF;
  SELECT x.place, x.edition, x.seq, y.standfast_epoch AS epoch INTO h FROM {own}names" x JOIN {s} y ON y.session_id = x.id
    WHERE x.kind = 'session' AND x.id = p FOR UPDATE;
  IF NOT FOUND OR h.epoch IS NULL OR h.seq IS NULL THEN RETURN; END IF;
  IF EXISTS (SELECT 1 FROM unnest(p_wants, p_wanted) w(name, value) LEFT JOIN {own}cells" c
      ON c.kind = 'session' AND c.id = p AND c.name = w.name WHERE c.value IS DISTINCT FROM w.value) THEN RETURN; END IF;
  SELECT standfast_place AS place, created_at AS at INTO l FROM {m} WHERE session_id = p ORDER BY standfast_place DESC LIMIT 1;
  IF FOUND AND l.place IS NULL THEN RETURN; END IF;
  moment := clock_timestamp(); before := greatest(moment::timestamp - tick, l.at);
  UPDATE {own}names" SET place = h.place + added, updated = greatest(moment, updated + tick),
    seq = CASE WHEN h.seq = (SELECT last_value FROM {own}seq") THEN h.seq ELSE nextval('{seq}') END WHERE kind = 'session' AND id = p;
  UPDATE {s} SET updated_at = greatest(moment::timestamp, updated_at + tick) WHERE session_id = p;
  INSERT INTO {own}cells" SELECT 'session', p, w.name, h.epoch, w.value FROM unnest(p_puts, p_put) w(name, value)
    ON CONFLICT (kind, id, name) DO UPDATE SET epoch = excluded.epoch, value = excluded.value;
  INSERT INTO {m} (session_id, message_data, created_at, standfast_place, standfast_writer, standfast_ordinal, standfast_replaces)
    SELECT p, t.data, before + t.i * tick, h.place + t.i, t.writer, t.ordinal, t.replaces
    FROM unnest(p_texts, p_writers, p_ordinals, p_replaces) WITH ORDINALITY t(data, writer, ordinal, replaces, i);
  mark := h.edition || '.' || (h.place + added) || '.0.';
END $f$;

-- Sessions that only other programs have written to, and those they have written to since: at the front of the listing,
-- in the order of their times.
CREATE OR REPLACE FUNCTION {own}adopt_sessions"() RETURNS VOID LANGUAGE plpgsql AS $f$
DECLARE r RECORD;
BEGIN
  FOR r IN SELECT s.session_id, s.updated_at FROM {s} s LEFT JOIN {own}names" n ON n.kind = 'session' AND n.id = s.session_id
    WHERE n.seq IS NULL OR s.updated_at::timestamptz > n.updated + interval '1 second' ORDER BY s.updated_at, s.session_id
  LOOP
    INSERT INTO {own}names" AS n (kind, id, seq, updated) VALUES ('session', r.session_id, nextval('{seq}'), r.updated_at)
      ON CONFLICT (kind, id) DO UPDATE SET seq = excluded.seq, updated = greatest(n.updated, excluded.updated);
  END LOOP;
END $f$;

CREATE TABLE IF NOT EXISTS {own}version" (version INTEGER PRIMARY KEY);
INSERT INTO {own}version" VALUES (2) ON CONFLICT DO NOTHING;
