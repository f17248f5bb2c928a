"""`make bench`: the benchmarks that need neither a GPU nor real corpora."""

from __future__ import annotations

from benchmarks import text_pipeline, trainer_overhead, using_a_space

if __name__ == "__main__":
    trainer_overhead.main()
    text_pipeline.main()
    using_a_space.main()
