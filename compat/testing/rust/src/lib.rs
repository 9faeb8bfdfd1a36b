//! The example is `tests/orders.rs`.
