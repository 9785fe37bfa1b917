//! What was said to keep serving does, and a switch takes itself back when it does not.
