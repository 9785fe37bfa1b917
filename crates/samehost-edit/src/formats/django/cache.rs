//! Caches, and Celery's broker.

use std::ops::Range;

use samehost_model::{Endpoint, Protocol};
use tree_sitter::Node;

use super::literal::{Value, line};
use super::{Found, How, Settings};
use crate::languages::url::{self, Url, is_plain_path};
use crate::refusal::{Refusal, Result};
use crate::spelling::Spelling;

impl Settings<'_> {
    pub(super) fn cache(&self, alias: &str, node: Node<'_>) -> Result<Option<Found>> {
        let name = format!("CACHES {alias}");
        let Value::Dict(pairs) = self.source.value(node) else { return self.code(&name, node) };
        let get = |key: &str| pairs.iter().find(|(one, _)| one == key).map(|(_, value)| *value);
        let backend = get("BACKEND").and_then(|value| self.text(value)).unwrap_or_default();
        let Some(location) = get("LOCATION") else { return Ok(None) };
        let (redis, prefix) = match backend.rsplit('.').next().unwrap_or_default() {
            "RedisCache" if backend.starts_with("django.core.") || backend.starts_with("django_redis.") => {
                (true, "")
            }
            "PyLibMCCache" => (false, ""),
            "PyMemcacheCache" | "MemcachedCache" => (false, "unix:"),
            _ => return Ok(None),
        };
        let value = match self.source.value(location) {
            Value::List(values) => match values.as_slice() {
                [one] => *one,
                _ => {
                    return Err(Refusal::at(line(location), format!("{name} has several servers"))
                        .by_hand("a LOCATION of one server"));
                }
            },
            _ => location,
        };
        let Value::Text(text, range) = self.source.value(value) else {
            return self.code(&format!("{name} LOCATION"), value);
        };
        if redis {
            return self.url(&name, &text, range, Spelling::UnixScheme, value);
        }
        let path = text.strip_prefix("unix:").unwrap_or(&text);
        let endpoint = if path.starts_with('/') {
            is_plain_path(path).then(|| Endpoint::Unix(path.into()))
        } else {
            let (host, port) = text.rsplit_once(':').unwrap_or((&text, "11211"));
            port.parse().ok().and_then(|port| url::tcp(host.trim_matches(['[', ']']), port))
        };
        let Some(endpoint) = endpoint else {
            let by_hand = format!("'LOCATION': '{prefix}/run/memcached/memcached.sock'");
            return Err(Refusal::at(line(value), format!("{name}: its LOCATION is unusual")).by_hand(by_hand));
        };
        let setting = self.setting(&name, Protocol::Memcached, endpoint, text, value);
        Ok(Some(Found { setting, how: How::Memcached(prefix, range) }))
    }

    pub(super) fn broker(&self, name: &str, value: Node<'_>) -> Result<Option<Found>> {
        match self.source.value(value) {
            Value::Text(text, range) if text.starts_with("redis") => {
                self.url(name, &text, range, Spelling::Celery, value)
            }
            // RabbitMQ, the database, and so on.
            Value::Text(..) | Value::Nothing => Ok(None),
            _ => self.code(name, value),
        }
    }

    fn url(
        &self,
        name: &str,
        text: &str,
        range: Range<usize>,
        spelling: Spelling,
        at: Node<'_>,
    ) -> Result<Option<Found>> {
        let refused = |why: &str| {
            let by_hand = match spelling {
                Spelling::Celery => "'redis+socket:///run/redis/redis-server.sock?virtual_host=0'",
                _ => "'unix:///run/redis/redis-server.sock?db=0'",
            };
            Err(Refusal::at(line(at), format!("{name}: {why}")).by_hand(by_hand))
        };
        let Some(parsed) = Url::parse(text) else { return refused("its URL is unusual") };
        match spelling.read(&parsed) {
            Ok(said) => {
                let mut setting = self.setting(name, Protocol::Redis, said.endpoint, parsed.shown(), at);
                setting.user = parsed.user();
                setting.password = parsed.password();
                setting.database = said.database;
                Ok(Some(Found { setting, how: How::Url(spelling, text.to_owned(), range) }))
            }
            Err(why) => refused(why),
        }
    }
}
