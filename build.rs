//! Builds the C programs of the tests.
fn main() {}
