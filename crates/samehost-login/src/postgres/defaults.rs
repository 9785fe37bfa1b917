//! Who a client of PostgreSQL is where nothing says so, as libpq has it.

use crate::log_in::own_name;

/// What the surroundings say where the URL is silent.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// PGUSER, else the name of the user that we are.
    pub user: String,
    /// PGDATABASE, else the user's name.
    pub database: Option<String>,
}

impl Defaults {
    /// From the environment and passwd(5), as libpq has them.
    #[must_use]
    pub fn here() -> Self {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Defaults {
            user: given("PGUSER").or_else(own_name).unwrap_or_else(|| "postgres".into()),
            database: given("PGDATABASE"),
        }
    }
}
