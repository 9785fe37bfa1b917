//! Files beside a .env file that override it: .env.local, .env.production.

use std::path::Path;

use super::framework::Framework;
use super::lines::Lines;
use crate::files::Files;

/// Name of a file that overrides this one and sets the variable as well; in production, or in this file's environment.
pub(super) fn later(
    file: &Path,
    files: &dyn Files,
    framework: Framework,
    lines: &Lines,
    name: &str,
) -> Option<String> {
    // Laravel reads one file; django-environ and python-dotenv the one that they are given.
    if matches!(framework, Framework::Laravel | Framework::Django | Framework::Unknown) {
        return None;
    }
    let own = file.file_name()?.to_str()?;
    let place = own.strip_prefix(".env")?;
    let directory = file.parent()?;
    let place_of = place.trim_start_matches('.').trim_end_matches("local").trim_end_matches('.');
    let declared = ["APP_ENV", "RAILS_ENV", "NODE_ENV", "WP_ENV"].iter().find_map(|key| lines.literal(key));
    let mut environments = vec!["prod", "production"];
    environments.extend([place_of, declared.unwrap_or_default()].iter().filter(|name| !name.is_empty()));
    let mut candidates = vec![".env.local".to_owned()];
    for environment in environments {
        candidates.push(format!(".env.{environment}"));
        candidates.push(format!(".env.{environment}.local"));
    }
    candidates.sort();
    candidates.dedup();
    candidates.into_iter().filter(|other| rank(other, framework) > rank(own, framework)).find(|other| {
        let Ok(text) = files.read(&directory.join(other)) else { return false };
        // What cannot be read may set it.
        Lines::parse(&text).map_or(true, |lines| lines.last(name).is_some())
    })
}

fn rank(name: &str, framework: Framework) -> u8 {
    let rest = name.strip_prefix(".env").unwrap_or_default();
    let local = rest.ends_with(".local");
    let environment = !rest.is_empty() && rest != ".local";
    match (environment, local) {
        (false, false) => 0,
        // Symfony reads the environment's file before .env.local; all others do it the other way round.
        (true, false) => {
            if framework == Framework::Symfony {
                2
            } else {
                1
            }
        }
        (false, true) => {
            if framework == Framework::Symfony {
                1
            } else {
                2
            }
        }
        (true, true) => 3,
    }
}
