//! What a panic does.

/// Lets a panic of any thread end the program: what the others would show then could be wrong. The exit status is that of
/// Rust's own panics. abort(3) would leave a core file, with passwords in it.
pub(crate) fn end() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::exit(101)
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const CHILD: &str = "SAMEHOST_TEST_PANIC";

    #[test]
    #[allow(clippy::exit, reason = "it is a process of its own")]
    fn a_thread_that_panics_ends_the_program() {
        if std::env::var_os(CHILD).is_some() {
            super::end();
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            std::process::exit(0);
        }
        let name = "panics::tests::a_thread_that_panics_ends_the_program";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let ended = again.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(101));
        assert!(String::from_utf8_lossy(&ended.stderr).contains("on purpose"));
    }
}
