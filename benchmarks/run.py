"""`make bench`: the benchmarks that need neither a GPU nor real corpora."""

from __future__ import annotations

from benchmarks import cpu, data_parallel, text_pipeline, trainer_overhead, training_cost, using_a_space

if __name__ == "__main__":
    trainer_overhead.main()
    cpu.main([])
    text_pipeline.main([])
    using_a_space.main([])
    training_cost.main([])
    data_parallel.main([])
