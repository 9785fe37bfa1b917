//! What runs as root: nothing of the application's, nothing that another user can write.
