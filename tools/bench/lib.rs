//! Has only benchmarks; cargo wants a target that is none.
