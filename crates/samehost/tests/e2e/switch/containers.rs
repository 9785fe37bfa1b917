//! Files of containers that reach one another: nothing of them is switched, and what to write is said.

use std::fs;

use crate::support::Home;

/// A file of containers, the status, and words of what is said of it.
const CASES: &[(&str, &str, i32, &[&str])] = &[
    (
        "compose.yaml",
        "services:
  web:
    image: wordpress
    environment:
      WORDPRESS_DB_HOST: samehost-no-such-host
  samehost-no-such-host:
    image: mariadb:11
",
        1,
        &[
            "the container samehost-no-such-host over TCP",
            "samehost-no-such-host-socket:/run/mysqld in volumes:",
        ],
    ),
    (
        "pod.yaml",
        "apiVersion: v1
kind: Pod
metadata:
  name: shop
spec:
  containers:
    - name: web
      image: wordpress
      env:
        - name: WORDPRESS_DB_HOST
          value: 127.0.0.1
    - name: db
      image: mysql:8
",
        2,
        &["manifest is not edited", "`volumeMounts` of both containers", "samehost how SERVICE --kubernetes"],
    ),
    (
        "web.container",
        "[Container]
Image=wordpress
Environment=WORDPRESS_DB_HOST=systemd-db
",
        2,
        &["is not edited", "Volume=DIRECTORY:DIRECTORY", "`Environment=`", "systemctl daemon-reload"],
    ),
];

#[test]
fn what_to_write_into_files_of_containers_is_said() {
    let home = Home::new();
    for (name, text, status, words) in CASES {
        let file = home.path(name);
        fs::write(&file, text).unwrap();
        let ended = home.run(&["switch", file.to_str().unwrap(), "--dry-run"]);
        assert_eq!(ended.status, *status, "{name}: {}", ended.both());
        let said = ended.both();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in *words {
            assert!(said.contains(word), "{name}: {word} in {said}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), *text, "{name} is as it was");
    }
}
