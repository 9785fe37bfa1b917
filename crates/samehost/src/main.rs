//! samehost
fn main() {}
