//! Web servers with the words of a row in their configuration.

use std::fs;
use std::path::Path;
use std::process::Command;

use samehost_testing::free_port;

/// A web server in front of another server.
#[derive(Clone, Copy)]
pub(super) enum Front {
    Nginx,
    Apache,
    Haproxy,
    Caddy,
    /// nginx that passes gRPC on.
    NginxGrpc,
}

impl Front {
    /// The command that starts it below a folder, and the port that it listens on. `page` is what FastCGI runs.
    pub(super) fn command(self, folder: &Path, words: &str, page: &Path) -> (Command, u16) {
        let port = free_port();
        let at = folder.display();
        let file = folder.join("settings");
        let is_fastcgi = words.contains("fastcgi") || words.contains("fcgi");
        let (program, options, settings) = match self {
            Front::Nginx | Front::NginxGrpc => {
                let version = if matches!(self, Front::NginxGrpc) { " http2" } else { "" };
                (
                    "nginx",
                    vec!["-e", "stderr", "-c"],
                    format!(
                        "daemon off; master_process off; pid {at}/pid; events {{}}\nhttp {{ access_log off; client_body_temp_path {at};\n\
                     fastcgi_temp_path {at}; proxy_temp_path {at}; uwsgi_temp_path {at}; scgi_temp_path {at};\n\
                     server {{ listen 127.0.0.1:{port}{version}; location / {{ {words}\n{} }} }} }}\n",
                        if is_fastcgi {
                            format!(
                                "fastcgi_param SCRIPT_FILENAME {}; fastcgi_param REQUEST_METHOD GET;",
                                page.display()
                            )
                        } else {
                            String::new()
                        }
                    ),
                )
            }
            Front::Apache => (
                "apache2",
                vec!["-X", "-f"],
                format!(
                    "ServerRoot {at}\nPidFile {at}/pid\nServerName localhost\nErrorLog {at}/error\nListen 127.0.0.1:{port}\nUser www-data\nGroup www-data\n\
                 {}DocumentRoot {}\n<Directory />\nRequire all granted\n</Directory>\n{}\n",
                    ["mpm_event", "authz_core", "proxy", "proxy_http", "proxy_fcgi"]
                        .map(|name| format!(
                            "LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
                        ))
                        .concat(),
                    page.parent().unwrap().display(),
                    if is_fastcgi {
                        format!("<FilesMatch \"\\.php$\">\n{words}\n</FilesMatch>")
                    } else {
                        words.to_owned()
                    }
                ),
            ),
            Front::Haproxy => (
                "haproxy",
                vec!["-db", "-f"],
                format!(
                    "defaults\nmode http\ntimeout connect 5s\ntimeout client 5s\ntimeout server 5s\n\
                 frontend web\nbind 127.0.0.1:{port}\ndefault_backend apps\nbackend apps\n{words}\n"
                ),
            ),
            Front::Caddy => (
                "caddy",
                vec!["run", "--adapter", "caddyfile", "--config"],
                format!(
                    "{{\nadmin off\nauto_https off\n}}\nhttp://127.0.0.1:{port} {{\nroot * {}\n{words}\n}}\n",
                    page.parent().unwrap().display()
                ),
            ),
        };
        fs::write(&file, settings).unwrap();
        let mut command = Command::new(program);
        command.args(options).arg(&file).env("HOME", folder).env("XDG_DATA_HOME", folder);
        (command, port)
    }
}
