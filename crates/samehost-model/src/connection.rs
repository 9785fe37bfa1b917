//! Settings of a measured connection, as the kernel reported them for each end.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One end of a connection, as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SocketEnd {
    /// The congestion control of what this end sends, such as `cubic`; TCP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// `SO_SNDBUF` when the connection was new, in bytes as the kernel counts them. Where nobody set it, TCP's grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<u64>,
    /// `SO_RCVBUF`, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
    /// `TCP_NODELAY`; TCP only, and absent where the kernel tells it of no other's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodelay: Option<bool>,
}

/// Both ends of a connection; one that nobody could look at is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectionSettings {
    /// The client's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketEnd>,
    /// The server's end, which sends the replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketEnd>,
}

impl ConnectionSettings {
    /// Distinct congestion controls in use, the client's first; empty for transports without any.
    #[must_use]
    pub fn congestion(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for end in [&self.client, &self.server].into_iter().flatten() {
            names.extend(end.congestion.as_deref().filter(|name| !names.contains(name)));
        }
        names
    }
}

impl fmt::Display for ConnectionSettings {
    /// Formats as `cubic, buffers 2.6 MB/131 kB, no delay`; if the ends differ, each with its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.client, &self.server) {
            (Some(client), Some(server)) => {
                // The server's TCP_NODELAY may be unknown, so it is not compared.
                let alike = SocketEnd { nodelay: client.nodelay, ..server.clone() };
                if *client == alike {
                    write!(f, "{client}")
                } else {
                    write!(f, "client {client}; server {server}")
                }
            }
            (Some(one), None) => write!(f, "client {one}; the server's end was not seen"),
            (None, Some(one)) => write!(f, "server {one}; the client's end was not seen"),
            (None, None) => f.write_str("not seen"),
        }
    }
}

impl fmt::Display for SocketEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.congestion.iter().cloned().collect();
        if let (Some(send), Some(receive)) = (self.send_buffer_bytes, self.receive_buffer_bytes) {
            parts.push(format!("buffers {} to send, {} to receive", kib(send), kib(receive)));
        }
        match self.nodelay {
            Some(true) => parts.push("NODELAY".into()),
            Some(false) => parts.push("Nagle's algorithm".into()),
            None => {}
        }
        f.write_str(&parts.join(", "))
    }
}

fn kib(bytes: u64) -> String {
    let kib = bytes as f64 / 1024.0;
    if kib >= 1024.0 { format!("{:.1} MiB", kib / 1024.0) } else { format!("{kib:.0} KiB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(congestion: Option<&str>, nodelay: Option<bool>) -> SocketEnd {
        SocketEnd {
            congestion: congestion.map(str::to_owned),
            send_buffer_bytes: Some(212_992),
            receive_buffer_bytes: Some(4 << 20),
            nodelay,
        }
    }

    #[test]
    fn ends_that_are_alike_are_told_once() {
        let both = |client, server| ConnectionSettings { client, server };
        let tcp = both(Some(end(Some("cubic"), Some(true))), Some(end(Some("cubic"), None)));
        assert_eq!(tcp.to_string(), "cubic, buffers 208 KiB to send, 4.0 MiB to receive, NODELAY");
        assert_eq!(tcp.congestion(), ["cubic"]);
        let mixed = both(Some(end(Some("cubic"), Some(true))), Some(end(Some("bbr"), None)));
        assert!(
            mixed.to_string().starts_with("client cubic, ") && mixed.to_string().contains("; server bbr")
        );
        assert_eq!(mixed.congestion(), ["cubic", "bbr"]);
        let unix = both(Some(end(None, None)), Some(end(None, None)));
        assert!(unix.congestion().is_empty());
        assert!(both(Some(end(None, None)), None).to_string().contains("not seen"));
    }
}
