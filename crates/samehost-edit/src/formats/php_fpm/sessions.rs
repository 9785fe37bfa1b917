//! Sessions that a pool keeps elsewhere than php.ini says: `php_value[session.save_path]` and `php_admin_value[…]`, of
//! which the latter wins. The extension is the pool's, or that of the php.ini beside php-fpm.conf.

use std::path::Path;

use super::pools::{Placed, Pool, Pools};
use crate::files::Files;
use crate::formats::php_ini::{self, BY_HAND, HANDLER, Handler, Ini, PATH, Saved};
use crate::refusal::{Refusal, Result};

/// Where php.ini is, from the directory of php-fpm.conf.
const PHP_INI: &[&str] = &["php.ini", "php/php.ini"];

/// The line with a pool's path of sessions; `None` if it has none, or keeps them in files.
pub(super) fn of_pool<'a>(pools: &'a Pools, pool: &'a Pool, files: &dyn Files) -> Result<Option<Saved<'a>>> {
    let Some(placed) = value(pools, pool, PATH)? else { return Ok(None) };
    let file = pools.sources[placed.source].path.as_path();
    let handler = match value(pools, pool, HANDLER)? {
        Some(own) => php_ini::handler(&own.entry, &pools.sources[own.source].path)?,
        None => of_php_ini(pools, placed, files)?,
    };
    let title = format!("{PATH} of pool {}", pool.name);
    let saved = handler.map(|handler| Saved { handler, title, file, entry: &placed.entry });
    match (&saved, &placed.entry.value) {
        (Some(_), Ok(path)) if path.contains('$') => {
            Err(pools.refusal(placed, "the path has a variable of PHP-FPM in it", BY_HAND))
        }
        _ => Ok(saved),
    }
}

/// The line of a value that counts.
fn value<'a>(pools: &Pools, pool: &'a Pool, key: &str) -> Result<Option<&'a Placed>> {
    for kind in ["php_admin_value", "php_value"] {
        let name = format!("{kind}[{key}]");
        let mut found = pool.entries.iter().filter(|placed| placed.entry.key == name);
        let (first, second) = (found.next(), found.next());
        if let Some(second) = second {
            return Err(pools.refusal(second, format!("`{name}` stands twice"), "keep one of the lines"));
        }
        if first.is_some() {
            return Ok(first);
        }
    }
    Ok(None)
}

fn of_php_ini(pools: &Pools, placed: &Placed, files: &dyn Files) -> Result<Option<Handler>> {
    let folder = pools.sources.first().and_then(|main| main.path.parent()).unwrap_or(Path::new("/"));
    let main = PHP_INI.iter().map(|name| folder.join(name)).find(|main| files.exists(main));
    match main {
        Some(main) => Ini::read(&main, files)?.handler(),
        None if placed.entry.value.as_ref().is_ok_and(|path| path.contains(':')) => Err(Refusal::new(
            &pools.sources[placed.source].path,
            placed.entry.number,
            format!("neither the pool nor a php.ini beside it says {HANDLER}"),
            "php_value[session.save_handler] = redis in the pool",
        )),
        None => Ok(None),
    }
}
