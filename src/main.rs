//! Arguments, wiring, window or headless run.

fn main() {}
