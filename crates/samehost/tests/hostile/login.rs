//! Whom a password is told: nobody who is not tied to the service.
