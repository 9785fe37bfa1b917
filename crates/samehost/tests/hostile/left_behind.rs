//! What a server left at its socket's path after an undo is no bar to the same switch again; what is somebody's stays.

use std::os::unix::net::UnixListener;

use crate::stays::{SYMFONY, Server};
use crate::support::is_there;

fn cache(server: &Server) -> String {
    server.write("app/artisan", "#!/usr/bin/env php\n");
    server.write("app/composer.json", "{\"require\": {\"laravel/framework\": \"^10\"}}");
    server.write("app/.env", "CACHE_DRIVER=memcached\nMEMCACHED_HOST=127.0.0.1\nMEMCACHED_PORT=@PORT\n")
}

#[test]
fn a_memcached_is_switched_again_after_an_undo() {
    let server = Server::memcached();
    let env = cache(&server);
    for _ in 0..2 {
        let ended = server.switch(&env, &[]);
        assert_eq!(ended.status, 0, "{}", ended.both());
        let undone = server.machine.samehost(&["switch", "undo", "--yes"]);
        assert!(undone.status == 0 && server.is_open(), "{}", undone.both());
        assert!(!is_there(&server.socket), "an undo left the socket's file");
    }
}

#[test]
fn a_socket_that_somebody_made_at_that_path_since_is_not_removed() {
    let server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let env = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let ended = server.switch(&env, &[]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    // Another server's, which is down: another file at the same path.
    std::fs::remove_file(&server.socket).unwrap();
    drop(UnixListener::bind(&server.socket).unwrap());
    // A Redis that ends removes what is at its path; this one is killed.
    let script = std::fs::read_to_string(&server.restart).unwrap();
    std::fs::write(&server.restart, script.replace("kill $old &&", "kill -9 $old &&")).unwrap();
    let undone = server.machine.samehost(&["switch", "undo", "--yes"]);
    assert!(undone.status == 0 && is_there(&server.socket), "{}", undone.both());
}
