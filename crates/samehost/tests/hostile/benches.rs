//! What measuring leaves open to others, and what it does to servers that run.
