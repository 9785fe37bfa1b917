//! What moves over the connections: rates, short connections, and what a switch would save of it.

pub(crate) mod catch;
pub(crate) mod exchanges;
pub(crate) mod held_back;
pub(crate) mod observe;
pub(crate) mod own_times;
pub(crate) mod predict;
pub(crate) mod short_connections;
