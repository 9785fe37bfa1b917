//! Codes of what a scan finds, and of what is in the way of a switch.

use std::fmt;

use serde::{Serialize, Serializer};

/// Lists codes once, with their names.
macro_rules! codes {
    ($(#[$about:meta])* $codes:ident: $($(#[$doc:meta])* $code:ident = $name:literal,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $codes {
            $($(#[$doc])* $code,)*
        }

        impl $codes {
            /// All codes.
            pub const ALL: &'static [$codes] = &[$($codes::$code),*];

            /// The name in JSON and on the screen.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($codes::$code => $name,)*
                }
            }
        }

        impl fmt::Display for $codes {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Serialize for $codes {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

codes! {
    /// The code of an obstacle; its name is what JSON, the screen and `--accept` have.
    ObstacleCode:
    /// The service has no Unix socket, or cannot have one.
    Server = "server",
    /// The queue of new connections is short.
    Backlog = "backlog",
    /// The client may not use the socket's file.
    Permissions = "permissions",
    /// The client is confined, and its profile or filter may forbid the socket.
    Confinement = "confinement",
    /// The client sees other files at the socket's path.
    MountNamespace = "mount-namespace",
    /// `localhost` means something else to this client.
    Localhost = "localhost",
    /// The account does not exist for local connections.
    Accounts = "accounts",
    /// One of both is in a container.
    Container = "container",
    /// The client's driver knows ports only.
    Driver = "driver",
    /// A socket file at which nobody listens.
    Stale = "stale",
    /// Another program listens at the usual socket.
    AnotherSocket = "another-socket",
    /// The service would see no address of the client any more.
    ClientAddress = "client-address",
    /// The connection is encrypted.
    Tls = "tls",
    /// The path is too long for a socket's address.
    PathLength = "path-length",
    /// The file system has no sockets.
    FileSystem = "file-system",
    /// A mount over the file would hide the change.
    BindMount = "bind-mount",
    /// The next boot would not have the socket.
    Boot = "boot",
    /// The file changed since it was read.
    Changed = "changed",
    /// A server that crashes leaves its socket in the way of the next one.
    Crash = "crash",
    /// Another source of the same setting wins.
    EffectiveValue = "effective-value",
    /// The client asks for encryption that a Unix socket may not give.
    Encryption = "encryption",
    /// The file cannot be read or written.
    File = "file",
    /// The login was refused.
    Login = "login",
    /// A program writes the file again.
    Managed = "managed",
    /// Nobody listens at the address that the file names.
    NobodyListens = "nobody-listens",
    /// A value leads to a service here, and what reads it is not known.
    NotMoved = "not-moved",
    /// The editor refuses a part of the file.
    NotUnderstood = "not-understood",
    /// Somebody has the file open in an editor.
    OpenInEditor = "open-in-editor",
    /// A file that nobody named would change.
    OtherFiles = "other-files",
    /// The file belongs to somebody who is neither root nor the program's user.
    OtherOwner = "other-owner",
    /// A password is kept for the old address only.
    PasswordFile = "password-file",
    /// The program cannot be made to load the change.
    Reload = "reload",
    /// Rights of this process do not suffice for a login as the application.
    Rights = "rights",
    /// Two configurations are one file.
    SameFile = "same-file",
    /// Another program reads the same value.
    SecondReader = "second-reader",
    /// It is not shown which program answers.
    ServerIdentity = "server-identity",
    /// The server's account is not known.
    ServerUser = "server-user",
    /// Other machines may read the file.
    SharedFiles = "shared-files",
    /// The path for the new socket cannot be taken.
    SocketPath = "socket-path",
    /// Somebody still uses the old address.
    StillUsed = "still-used",
    /// The client's account is not known.
    User = "user",
}

impl ObstacleCode {
    /// Those that only a person may pass, by `--accept CODE`, in the order in which help lists them.
    pub const ACCEPTABLE: [ObstacleCode; 5] = [
        ObstacleCode::Managed,
        ObstacleCode::SharedFiles,
        ObstacleCode::OtherFiles,
        ObstacleCode::Encryption,
        ObstacleCode::Boot,
    ];

    /// The code with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<ObstacleCode> {
        ObstacleCode::ALL.iter().copied().find(|code| code.name() == name)
    }
}

codes! {
    /// The kind of a finding; metrics have each of them, so that the first finding is an increase from 0.
    FindingCode:
    /// A receiver of datagrams loses some.
    DatagramsDropped = "datagrams-dropped",
    /// Datagrams to a program on this machine go over UDP.
    DatagramsOverUdp = "datagrams-over-udp",
    /// A listener's queue of new connections is full.
    FullQueue = "full-queue",
    /// Everybody on the machine may connect to a socket.
    OpenToEverybody = "open-to-everybody",
    /// Most local ports of a pair of addresses are taken.
    PortsRunOut = "ports-run-out",
    /// A container's port is reached by way of a proxy or a translation of addresses.
    PublishedPort = "published-port",
    /// Other machines see a socket's file, and cannot connect.
    SharedFiles = "shared-files",
    /// A program accepts connections more slowly than they come.
    SlowAccept = "slow-accept",
    /// Small pieces wait for acknowledgements.
    SmallWritesWait = "small-writes-wait",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse_back() {
        for code in ObstacleCode::ALL {
            assert_eq!(ObstacleCode::named(code.name()), Some(*code));
        }
        assert_eq!(ObstacleCode::named("rigths"), None);
    }
}
