//! What to try next after a server refused: the option of `bench` that helps, or else the general advice of
//! `samehost-login`.

use samehost_login::Refused;
use samehost_model::Protocol;

pub(crate) fn try_next(refused: &Refused) -> String {
    let code = refused.code.as_deref();
    let advice = match refused.protocol {
        Protocol::Mysql if code == Some("1045") && refused.may_need_tls => {
            return format!("{}: --transports tcp+tls", refused.try_next);
        }
        Protocol::Mysql => code.and_then(|code| code.parse().ok()).map(mysql),
        Protocol::Postgres => postgres(refused),
        Protocol::Redis => Some(redis(&refused.answer)),
        _ => None,
    };
    advice.map_or_else(|| refused.try_next.clone(), str::to_owned)
}

pub(crate) fn mysql(code: u16) -> &'static str {
    match code {
        1040 | 1203 | 1226 => "use fewer --connections, or raise max_connections",
        1044 => {
            "grant the user a database of the tool's own (CREATE on samehost.*), name one that it may use in the URL, or try --read-only yes"
        }
        3159 | 1835 => "the server takes TLS or the Unix socket only: --transports tcp+tls,unix",
        1290 | 1792 | 1836 => "the server is read-only: try --read-only yes",
        1142 | 1227 => "the user may not do that: try --read-only yes, or grant it",
        1021 | 1114 => "the disk is full",
        code => samehost_login::mysql::advice(code),
    }
}

fn postgres(refused: &Refused) -> Option<&'static str> {
    Some(match refused.code.as_deref() {
        None if refused.what == "TLS" => {
            "set `ssl = on` with a certificate in postgresql.conf, or leave tcp+tls out of --transports"
        }
        Some("28000") if refused.may_need_tls => {
            "pg_hba.conf requires TLS for this connection (hostssl), or has no entry for this user and database: try --transports tcp+tls,unix"
        }
        Some("42501") => {
            "grant it (GRANT CREATE ON SCHEMA public TO …), or use --statement select-1 --read-only yes, which writes nothing"
        }
        Some("25006") => "this server only reads; use --statement select-1 --read-only yes",
        Some("53100") => {
            "make room on the disk of its data directory (TMPDIR, for a private server), or use fewer --rows"
        }
        Some("53300") => {
            "use fewer --connections, or raise max_connections in postgresql.conf (and the role's CONNECTION LIMIT)"
        }
        _ => return None,
    })
}

fn redis(answer: &str) -> &'static str {
    match answer.split(' ').next().unwrap_or_default() {
        "NOPERM" => "the user lacks permission for this command; --command ping needs no permission for keys",
        "READONLY" => "this is a replica; measure its primary, or use --command ping",
        _ => samehost_login::redis::advice(answer),
    }
}
