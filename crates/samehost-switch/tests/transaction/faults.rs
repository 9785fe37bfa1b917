//! Kills and failures at every point.
