//! The proof of the `haproxy` editor: a real HAProxy starts with the configuration and opens its listeners. A script in
//! Lua inside it says the address of each server, the kernel says which root directory the process has by then, and the
//! console says where health checks go and all else of each server.

use std::collections::BTreeSet;
use std::path::Path;

use crate::case::Case;
use crate::{facts, sandbox};

const LEAST_CASES: usize = 95;

/// Starts HAProxy with the configuration and a second one of ours. A line of the console is written in words, because an
/// address has no room for a path there.
const SCRIPT: &str = r#"
mkdir -m 777 /run/ask
mkdir -p /run/haproxy "$2/chroot"
echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind
cat > /run/ask/ask.lua <<'END'
core.register_init(function()
    for proxy, one in pairs(core.backends) do
        for name, server in pairs(one.servers) do
            print("address " .. proxy .. " " .. name .. " " .. server:get_addr())
        end
    end
end)
END
cat > /run/ask/ask.cfg <<'END'
global
    stats socket /run/ask/console level admin
    lua-load /run/ask/ask.lua
END
haproxy -db -f "$1" -f /run/ask/ask.cfg >/run/ask/said 2>/run/ask/errors &
haproxy=$!
ask() { echo "$1" | nc -U -N /run/ask/console 2>/run/ask/nc; }
for turn in $(seq 1000); do
    ask 'show info' | grep -q '^Uptime:' && break
    kill -0 $haproxy 2>/run/ask/nc || break
    sleep 0.01
done
echo "root $(readlink /proc/$haproxy/root)"
grep '^address ' /run/ask/said
ask 'show servers state' | grep '^[0-9]* ' || { cat /run/ask/said /run/ask/errors; exit 1; }
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let text = sandbox::run(SCRIPT, file, root);
    let own_root = text.lines().find_map(|line| line.strip_prefix("root ")).expect("the root of the process");
    let own_root = own_root.trim_end_matches('/');
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["address", proxy, name, address] = words.as_slice() {
            found.insert(format!("server {proxy}/{name} endpoint={}", endpoint(address, own_root)));
        } else if let [_, proxy, _, name, address, state @ ..] = words.as_slice() {
            found.extend(rest(proxy, name, address, state));
        }
    }
    found
}

fn endpoint(address: &str, root: &str) -> String {
    let (host, port) = match address.rsplit_once(':') {
        _ if address.starts_with('/') => return format!("unix:{root}{address}"),
        None => return format!("unix:{root}/{address}"),
        Some(parts) => parts,
    };
    if host.contains(':') { format!("tcp:[{host}]:{port}") } else { format!("tcp:{host}:{port}") }
}

/// What the console says of a server besides its address: the columns after `srv_addr`, without those that change from
/// moment to moment (its state, and the results of its checks).
fn rest(proxy: &str, name: &str, address: &str, state: &[&str]) -> Vec<String> {
    let [
        _,
        admin,
        weight,
        initial,
        _,
        _,
        _,
        _,
        check,
        agent,
        _,
        _,
        _,
        port,
        _,
        tls,
        check_port,
        check_addr,
        agent_addr,
        agent_port,
        ..,
    ] = state
    else {
        return Vec::new();
    };
    // Over a socket, a port alone is not used; over TCP it is used with the server's own address.
    let used = |own: &str, other: &str, number: &str| {
        let host = [own, other, address].into_iter().find(|host| *host != "-");
        match host {
            Some(host) if number != "0" && (host, number) != (address, *port) => {
                format!("at {host}:{number}")
            }
            _ => "where it is".to_owned(),
        }
    };
    let check_bits: u8 = check.parse().expect("a number");
    let agent_bits: u8 = agent.parse().expect("a number");
    let mut facts = vec![format!("server {proxy}/{name}: admin {admin} weight {weight} {initial} TLS {tls}")];
    // Bit 2 of the state: configured.
    if check_bits & 2 != 0 {
        facts.push(format!("server {proxy}/{name} is checked {}", used(check_addr, "-", check_port)));
    }
    if agent_bits & 2 != 0 {
        facts.push(format!(
            "server {proxy}/{name} has its agent {}",
            used(agent_addr, check_addr, agent_port)
        ));
    }
    facts
}

/// A fact after the case's moves. HAProxy has looked `localhost` up by then.
fn moved(fact: &str, case: &Case) -> String {
    let by_name = fact.replace("endpoint=tcp:127.0.0.1:", "endpoint=tcp:localhost:");
    match facts::moved(&by_name, case) {
        after if after != by_name => after,
        _ => facts::moved(fact, case),
    }
}

#[test]
fn corpus() {
    crate::run("haproxy", LEAST_CASES, ask, moved);
}
