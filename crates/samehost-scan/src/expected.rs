//! Whom a login to a service may meet: the policy that connections are tied by.

use samehost_login::Expected;
use samehost_model::Protocol;

/// Who may be at the other end: a server of this protocol, as its packages run it, as root, or as who runs this program;
/// or as the owner of the configuration that names it, for whose credentials it is.
#[must_use]
pub fn expected(protocol: Protocol, owner: Option<u32>) -> Expected {
    let expected = Expected::of_service(protocol);
    owner.into_iter().fold(expected, Expected::or_account)
}
