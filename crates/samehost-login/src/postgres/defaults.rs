//! Default user and database of PostgreSQL clients, as in libpq.

use crate::log_in::own_name;

/// Defaults if the URL has no user or database.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// PGUSER, else the name of the current user.
    pub user: String,
    /// PGDATABASE; `None` for the user's name.
    pub database: Option<String>,
}

impl Defaults {
    /// Reads the environment and passwd(5), as libpq does.
    #[must_use]
    pub fn here() -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Defaults {
            user: given("PGUSER").or_else(own_name).unwrap_or_else(|| "postgres".into()),
            database: given("PGDATABASE"),
        }
    }
}
