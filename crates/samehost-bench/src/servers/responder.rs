//! What a server says to the bytes of one connection. No I/O: the same responder serves a connection in a thread of
//! its own, or a thousand by epoll.

/// One connection's server.
pub(super) trait Responder: Default {
    /// The reply to the bytes that came, perhaps none yet; and whether the connection goes on after it.
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool);
}

/// Sends back what comes.
#[derive(Debug, Default)]
pub(super) struct Echo;

impl Responder for Echo {
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        (input, true)
    }
}
