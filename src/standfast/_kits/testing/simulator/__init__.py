"""Seeded whole lives of an agent: crashes, lost answers, slow stores."""
