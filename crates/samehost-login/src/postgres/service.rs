//! A service of libpq (`service=shop`, PGSERVICE): what its file says completes a URL, and never replaces a part of it.

use super::OwnFiles;
use crate::url::ServerUrl;

/// The URL with what its service says beside it, as options.
///
/// # Errors
/// The name of a service that no file has.
pub fn with_service(url: &ServerUrl, files: &OwnFiles) -> Result<ServerUrl, String> {
    let Some(name) = url.option("service").or_else(|| files.variable("PGSERVICE")) else {
        return Ok(url.clone());
    };
    let found = files.service(name).ok_or_else(|| name.escape_debug().to_string())?;
    let (authority, path) = url.place.split_once('/').unwrap_or((&url.place, ""));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let mut completed = url.clone();
    for (key, value) in found {
        let is_said = match key.as_str() {
            "host" => !host.is_empty(),
            "port" => !port.is_empty(),
            "user" => url.user.is_some(),
            "password" => url.password.is_some(),
            "dbname" => !path.is_empty(),
            _ => false,
        };
        if !is_said && url.option(&key).is_none() {
            completed.options.push((key, value));
        }
    }
    Ok(completed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use samehost_system::User;

    use super::*;

    #[test]
    fn a_service_completes_a_url_and_replaces_nothing() {
        let home = tempfile::tempdir().unwrap();
        let text = "[shop]\nhost=/run/pg\nport=5499\nuser=bob\ndbname=shop\nsslmode=require\n";
        std::fs::write(home.path().join(".pg_service.conf"), text).unwrap();
        let variables = [("HOME".to_owned(), home.path().display().to_string())];
        let files =
            OwnFiles::of_user(&User::of(rustix::process::geteuid().as_raw()), BTreeMap::from(variables));
        let parsed = |text: &str| ServerUrl::parse(text).unwrap().unwrap();
        let all = with_service(&parsed("postgres:///?service=shop"), &files).unwrap();
        for (key, value) in [("host", "/run/pg"), ("port", "5499"), ("user", "bob"), ("dbname", "shop")] {
            assert_eq!(all.option(key), Some(value));
        }
        let own = with_service(&parsed("postgres://eve@127.0.0.1:1/x?service=shop&sslmode=disable"), &files);
        let own = own.unwrap();
        let left: Vec<&str> =
            ["host", "port", "user", "dbname"].into_iter().filter_map(|key| own.option(key)).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(own.option("sslmode"), Some("disable"));
        let error = with_service(&parsed("postgres:///?service=none"), &files).err().unwrap();
        assert_eq!(error, "none");
    }
}
