//! PHP functions that matter to configurations, and inclusion.

use std::io;
use std::path::{Path, PathBuf};

use tree_sitter::Node;

use super::Run;
use super::expressions::path_value;
use super::source::Source;
use super::value::{Value, Valued};
use crate::files::Files;
use crate::languages::syntax::{children, walk};

/// Functions without effects on constants and variables.
const CALM: &[&str] = &[
    "abs", "array_key_exists", "array_keys", "array_merge", "basename", "class_exists", "count", "date",
    "date_default_timezone_set", "define", "defined", "constant", "dirname", "empty", "error_log",
    "error_reporting", "explode", "extension_loaded", "file_exists", "file_get_contents", "filter_var",
    "floatval", "function_exists", "getenv", "gethostname", "hash", "header", "header_remove",
    "http_response_code", "implode", "in_array", "ini_get", "ini_set", "intval", "is_array", "is_dir",
    "is_file", "is_null", "is_readable", "is_string", "isset", "json_decode", "ltrim", "max", "md5",
    "microtime", "min", "mktime", "php_sapi_name", "php_uname", "phpversion", "preg_quote", "putenv", "rand",
    "random_bytes", "realpath", "round", "rtrim", "session_name", "session_set_cookie_params",
    "set_time_limit", "setlocale", "sha1", "sprintf", "str_contains", "str_ends_with", "str_pad",
    "str_replace", "str_starts_with", "stripos", "strlen", "strpos", "strrpos", "strstr", "strtolower",
    "strtoupper", "substr", "substr_count", "sys_get_temp_dir", "time", "trim", "ucfirst", "umask", "uniqid",
    "urlencode", "var_export", "version_compare",
];

pub(super) fn calm(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| CALM.contains(&name))
}

/// Whether a function, by its name, reads the environment: `getenv`, `env`, `getenv_docker`.
pub(super) fn environment(name: &[u8]) -> bool {
    name.windows(3).any(|three| three == b"env") && name != b"putenv"
}

impl Run<'_> {
    pub(super) fn call(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let function = node.child_by_field_name("function");
        let Some(function) = function.filter(|name| matches!(name.kind(), "name" | "qualified_name")) else {
            return self.opaque(source, node, "which function is called here cannot be known");
        };
        let name = source.of(function).to_ascii_lowercase();
        let name = name.strip_prefix(b"\\").unwrap_or(&name).to_vec();
        let Some(arguments) = arguments(source, node) else {
            return self.opaque(source, node, "how this function is called is not followed");
        };
        let shown = String::from_utf8_lossy(&name).into_owned();
        let unknown = || Valued::unknown(source.trouble(node, format!("it is a result of {shown}()")));
        match name.as_slice() {
            b"define" => return self.define(source, node, &arguments),
            b"defined" => {
                let Some(name) = self.asked_constant(source, node) else { return unknown() };
                return self.is_defined(source, node, &name);
            }
            b"isset" | b"empty" => return unknown(),
            b"exit" | b"die" | b"__halt_compiler" => {
                for (_, argument) in &arguments {
                    self.evaluate(source, *argument);
                }
                self.state.over = true;
                return unknown();
            }
            _ => {}
        }
        if !calm(&name) && !environment(&name) {
            let reason = format!("it is a result of {shown}()");
            return self.opaque(source, node, &reason);
        }
        let values: Vec<Valued> =
            arguments.iter().map(|(_, argument)| self.evaluate(source, *argument)).collect();
        let first = values.first().and_then(|valued| valued.value.text());
        if environment(&name) {
            if !calm(&name) {
                let trouble = source.trouble(node, format!("{shown}() is called here"));
                self.state.called.get_or_insert(trouble);
            }
            let Some(variable) = first.and_then(|name| String::from_utf8(name).ok()) else {
                return unknown();
            };
            let mut trouble =
                source.trouble(node, format!("it comes from the environment variable {variable}"));
            trouble.environment = Some(variable);
            return Valued::unknown(trouble);
        }
        self.calm_call(source, node, &name, &values).unwrap_or_else(unknown)
    }

    /// Result of a function without effects; `None` if it cannot be known.
    fn calm_call(
        &mut self,
        source: &Source,
        node: Node<'_>,
        name: &[u8],
        values: &[Valued],
    ) -> Option<Valued> {
        let first = values.first().and_then(|valued| valued.value.text())?;
        match name {
            b"constant" => Some(self.constant(source, node, first.strip_prefix(b"\\").unwrap_or(&first))),
            b"dirname" => {
                let levels = match values.get(1).map(|valued| &valued.value) {
                    None => 1,
                    Some(Value::Integer(levels)) => usize::try_from(*levels).ok()?,
                    Some(_) => return None,
                };
                Some(known(source, node, &ancestor(&first, levels)?))
            }
            b"realpath" => {
                let path = absolute(&first)?;
                self.files.read(&path).ok()?;
                Some(known(source, node, &self.files.real(&path)))
            }
            b"file_exists" | b"is_file" | b"is_readable" => match self.files.read(&absolute(&first)?) {
                Ok(_) if name != b"is_readable" => Some(Valued::plain(Value::Truth(true))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Some(Valued::plain(Value::Truth(false)))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn define(
        &mut self,
        source: &Source,
        node: Node<'_>,
        arguments: &[(Option<Vec<u8>>, Node<'_>)],
    ) -> Valued {
        let result = Valued::plain(Value::Truth(true));
        let mut name = None;
        let mut value = None;
        for (index, (named, argument)) in arguments.iter().enumerate() {
            let valued = self.evaluate(source, *argument);
            match (named.as_deref(), index) {
                (Some(b"constant_name"), _) | (None, 0) => name = valued.value.text(),
                (Some(b"value"), _) | (None, 1) => value = Some(valued),
                // In PHP before 8, a constant of any case.
                _ if valued.value.truth() == Some(false) => {}
                _ => {
                    let reason = "this constant may be meant in any case of its letters";
                    self.state.lose(&source.trouble(node, reason));
                }
            }
        }
        let Some((name, value)) = name.zip(value) else {
            let trouble = source.trouble(node, "which constant is defined here cannot be known");
            self.state.lose(&trouble);
            return Valued::unknown(trouble);
        };
        self.state.define(&name, value);
        result
    }

    /// The constant in `defined('X')`.
    pub(super) fn asked_constant(&mut self, source: &Source, node: Node<'_>) -> Option<Vec<u8>> {
        let function = source.of(node.child_by_field_name("function")?).to_ascii_lowercase();
        if function.strip_prefix(b"\\").unwrap_or(&function) != b"defined" {
            return None;
        }
        let arguments = arguments(source, node)?;
        let [(_, argument)] = arguments.as_slice() else { return None };
        let name = self.evaluate(source, *argument).value.text()?;
        Some(name.strip_prefix(b"\\").unwrap_or(&name).to_vec())
    }

    fn is_defined(&self, source: &Source, node: Node<'_>, name: &[u8]) -> Valued {
        let tracked = self.setup.tracked.contains(&name);
        match self.state.constants.get(name) {
            Some(constant) if !constant.undefined => Valued::plain(Value::Truth(true)),
            None if tracked && self.state.anything.is_none() && self.state.called.is_none() => {
                Valued::plain(Value::Truth(false))
            }
            _ => {
                let shown = String::from_utf8_lossy(name);
                Valued::unknown(source.trouble(node, format!("whether {shown} is defined here is not known")))
            }
        }
    }

    pub(super) fn inclusion(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let Some(argument) = children(node).first().copied() else {
            return self.opaque(source, node, "this is not understood");
        };
        let value = self.evaluate(source, argument).value;
        let trouble = source.trouble(node, "which file is included here cannot be known");
        let result = Valued::unknown(source.trouble(node, "it comes from an included file"));
        // The last file is recognised by its name, wherever it is.
        let tail = match value.text() {
            Some(text) => text,
            None => {
                let last = walk(argument).filter(|inner| inner.kind() == "string_content").last();
                last.map(|last| source.of(last).to_vec()).unwrap_or_default()
            }
        };
        let name = tail.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if self.setup.last.is_some_and(|last| last.as_bytes() == name) {
            let state = self.state.clone();
            self.loaded = Some(match self.loaded.take() {
                Some(loaded) => loaded.meet(state, &trouble),
                None => state,
            });
            self.state.over = true;
            return result;
        }
        let path = value.text().and_then(|path| self.resolve(source, &path));
        match path {
            Some(path) => self.include(&path, node.kind(), trouble),
            None => self.state.lose(&trouble),
        }
        result
    }
}

fn arguments<'tree>(source: &Source, node: Node<'tree>) -> Option<Vec<(Option<Vec<u8>>, Node<'tree>)>> {
    let list = node.child_by_field_name("arguments")?;
    let mut found = Vec::new();
    for argument in children(list) {
        let name = argument.child_by_field_name("name");
        let inner = children(argument).into_iter().find(|child| Some(*child) != name)?;
        let is_plain = argument.kind() == "argument"
            && argument.child_by_field_name("reference_modifier").is_none()
            && !matches!(inner.kind(), "variadic_unpacking" | "argument_placeholder");
        if !is_plain {
            return None;
        }
        found.push((name.map(|name| source.of(name).to_vec()), inner));
    }
    Some(found)
}

fn absolute(path: &[u8]) -> Option<PathBuf> {
    let path = std::str::from_utf8(path).ok()?;
    if path.starts_with('/') { Some(PathBuf::from(path)) } else { None }
}

/// The directory so many levels above, as in dirname().
fn ancestor(path: &[u8], levels: usize) -> Option<PathBuf> {
    let path = absolute(path)?;
    if !(1..=64).contains(&levels) {
        return None;
    }
    Some(path.ancestors().nth(levels).unwrap_or(Path::new("/")).to_owned())
}

fn known(source: &Source, node: Node<'_>, path: &Path) -> Valued {
    Valued { value: path_value(path), place: None, via: Some(source.of(node).to_vec()) }
}
