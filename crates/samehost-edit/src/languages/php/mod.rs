//! PHP for the editors of PHP files: determines which constants and variables a file sets, without running it. What
//! cannot be known here (an environment variable, a function's result) is a value that says where and why. Reads only.

mod calls;
mod expressions;
mod literal;
mod opaque;
mod run;
mod source;
mod splice;
mod state;
mod statements;
mod value;

pub(crate) use literal::encode;
pub(crate) use run::{Outcome, RETURNED, Setup, execute};
pub(crate) use splice::{add, change, constant_used, once, property_used, remove, variable_used};
pub(crate) use state::Constant;
pub(crate) use value::{Item, Items, Place, Quoting, Trouble, Value, Valued};

/// Default socket of mysqlnd, PHP's client of MySQL, on Debian and Ubuntu; elsewhere php.ini's mysqli.default_socket and
/// pdo_mysql.default_socket.
pub(crate) const MYSQL_SOCKET: &str = "/run/mysqld/mysqld.sock";
