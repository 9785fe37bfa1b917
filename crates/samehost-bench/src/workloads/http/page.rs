//! One request outside of any measurement: whether a page is served.

use super::address::Address;
use super::exchange::{RequestParts, fetch};
use crate::BenchError;

/// What a server answers to a GET of a URL: `HTTP 200`.
///
/// # Errors
/// When the URL is none, nobody answers, or not in HTTP.
pub fn page_status(url: &str) -> Result<String, BenchError> {
    let address = Address::read(url)?;
    let request = RequestParts {
        keeps: false,
        authorization: address.authorization.as_deref(),
        ..RequestParts::get(address.target.as_deref().unwrap_or("/"), &address.host)
    };
    let (head, _) = fetch(&address.endpoint, &request.bytes())?;
    Ok(format!("HTTP {}", head.status))
}
