//! What reading configurations may cost: one counter of steps and bytes for a whole run, and the only text that may grow.
//!
//! Root reads what tenants write. 542 bytes of Apache's `Define A ${A}${A}` took 2.4 GB, and each format had limits of its own
//! against what its author had thought of. So the counter belongs to no format. An editor is only ever called with files that
//! count ([`Metered`], which nothing else can make), what it walks along counts (lines, nodes, expressions), and text that is
//! put together is [`Evaluated`]. Once the counter is spent these run dry, so that a walker needs no error of its own to stop,
//! and whatever the editor makes of what it got is replaced by the refusal.
//!
//! A file may take as much as its length allows, so that long files that are harmless pass. A circle of includes earns nothing:
//! a file counts once. Steps are counted over all readings of a configuration in a run, bytes in each of them, for they are freed.
//! A tenant's bomb spends the budget of its own file, and then a part of the run's, but not that of the next tenant's file.
//!
//! A clock was rejected: a busy or a slow machine would refuse files that another one takes.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::files::Files;
use crate::refusal::{Refusal, Result};

/// Steps that any file may take; one is about 10 ns of a program that is not optimised.
const STEPS: u64 = 200_000_000;
/// Further ones for each byte: 5 s in all for 1 MB.
const STEPS_PER_BYTE: u64 = 300;
/// Steps that all configurations of a run may take together, beyond what their lengths allow.
const STEPS_OF_A_RUN: u64 = 500_000_000;
/// Bytes that a reading may hold, and further ones for each byte that was read: 32 MB in all for 1 MB. The process takes up to
/// twice as much for them, by what vectors reserve and what an allocation takes beside its bytes.
const HELD: u64 = 24 << 20;
const HELD_PER_BYTE: u64 = 8;
/// Steps to open a file, and to look through each of its bytes.
const STEPS_TO_OPEN: usize = 40_000;
const STEPS_TO_READ: usize = 4;
/// Further steps that each other file of a configuration may take: a configuration in many files is as harmless as a long one.
const STEPS_FOR_A_FILE: u64 = 2 * STEPS_TO_OPEN as u64;
/// Steps to look at a name in a directory.
const STEPS_TO_LIST: usize = 100;

const WORK: &str = "to read it takes more work than its length allows";
const MEMORY: &str = "to read it takes more memory than its length allows";
const FILES: &str = "the files include each other too often, or there are too many of them";
const BY_HAND: &str = "look for what refers to itself, includes itself, nests without an end or says the same over and over, and remove it; or make the change by hand";

/// Steps of a configuration over all its readings in a run, or of the run.
#[derive(Clone, Debug, Default)]
struct Account {
    taken: u64,
    /// Earned by the lengths of files.
    earned: u64,
    /// Bytes of the files, each of which counts once.
    length: u64,
    files: BTreeSet<PathBuf>,
    refused: Option<Refusal>,
}

#[derive(Default)]
struct Counter {
    /// How many runs and readings are open; they may lie in each other.
    runs: Cell<usize>,
    readings: Cell<usize>,
    of_run: RefCell<Account>,
    of_files: RefCell<BTreeMap<PathBuf, Account>>,
    /// The configuration that is read.
    main: RefCell<PathBuf>,
    account: RefCell<Account>,
    steps_left: Cell<u64>,
    /// What was made once for all configurations of a run.
    made: RefCell<BTreeMap<String, Rc<dyn Any>>>,
    /// With these it began; what was earned since is added.
    steps_given: Cell<u64>,
    held: Cell<u64>,
    may_hold: Cell<u64>,
    is_spent: Cell<bool>,
    /// Where it is, in the file or in one that it includes.
    file: RefCell<PathBuf>,
    line: Cell<u32>,
}

thread_local! {
    static COUNTER: Counter = Counter::default();
}

/// Counts everything that is read meanwhile together. Without it each call of an editor is a run of its own.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    /// Ends the run, also by a panic.
    struct Open;
    impl Drop for Open {
        fn drop(&mut self) {
            COUNTER.with(Counter::end_run);
        }
    }
    COUNTER.with(|counter| counter.runs.set(counter.runs.get() + 1));
    let _open = Open;
    work()
}

/// What is made once in a run, as its files do not change meanwhile; outside of a run it is made each time. Of fifty sites each
/// asked the whole web server, and each of that one's blocks the whole of PHP-FPM: the last site found the budget spent.
pub fn once_in_a_run<T: 'static>(key: &str, make: impl FnOnce() -> T) -> Rc<T> {
    let known = COUNTER.with(|counter| counter.made.borrow().get(key).cloned());
    if let Some(made) = known.and_then(|known| known.downcast().ok()) {
        return made;
    }
    let made = Rc::new(make());
    COUNTER.with(|counter| {
        if counter.runs.get() > 0 {
            counter.made.borrow_mut().insert(key.to_owned(), Rc::<T>::clone(&made));
        }
    });
    made
}

/// What an editor says of a configuration, or that it takes more than it may.
pub(crate) fn within<T>(
    file: &Path,
    files: &dyn Files,
    work: impl FnOnce(&Metered<'_>) -> Result<T>,
) -> Result<T> {
    /// Ends the reading, also by a panic; what it held is free.
    struct Open(u64);
    impl Drop for Open {
        fn drop(&mut self) {
            COUNTER.with(|counter| counter.end_reading(self.0));
        }
    }
    run(|| {
        let _open = Open(COUNTER.with(|counter| counter.begin_reading(file)));
        if let Some(refusal) = COUNTER.with(Counter::refused) {
            return Err(refusal);
        }
        let said = work(&Metered {
            below: files,
            read: RefCell::default(),
            known: RefCell::default(),
            parsed: RefCell::default(),
        });
        COUNTER.with(Counter::refused).map_or(said, Err)
    })
}

/// Counts steps of a walker. Whether there is anything left: a walker that goes on finds nothing more.
pub(crate) fn step(steps: usize) -> bool {
    COUNTER.with(|counter| counter.step(steps as u64, WORK))
}

/// Counts a file that is opened, or is gone through once more where it is included again.
pub(crate) fn open() -> bool {
    COUNTER.with(|counter| counter.step(STEPS_TO_OPEN as u64, FILES))
}

/// Counts bytes that are kept, for as long as the file is read.
pub(crate) fn hold(bytes: usize) -> bool {
    COUNTER.with(|counter| counter.hold(bytes as u64))
}

fn release(bytes: usize) {
    COUNTER.with(|counter| counter.held.set(counter.held.get().saturating_sub(bytes as u64)));
}

/// The line that is read, for the refusal.
pub(crate) fn at(line: u32) {
    COUNTER.with(|counter| counter.line.set(line));
}

pub(crate) fn is_spent() -> bool {
    COUNTER.with(|counter| counter.is_spent.get())
}

impl Counter {
    fn begin_reading(&self, main: &Path) -> u64 {
        if self.readings.get() == 0 {
            let account = self.of_files.borrow().get(main).cloned().unwrap_or_default();
            let of_run = self.of_run.borrow();
            let own = (STEPS + account.earned).saturating_sub(account.taken);
            let left = own.min((STEPS_OF_A_RUN + of_run.earned).saturating_sub(of_run.taken));
            self.steps_left.set(left);
            self.steps_given.set(left);
            self.held.set(0);
            self.may_hold.set(HELD + HELD_PER_BYTE * account.length);
            self.is_spent.set(account.refused.is_some());
            self.line.set(0);
            main.clone_into(&mut self.main.borrow_mut());
            main.clone_into(&mut self.file.borrow_mut());
            self.account.replace(account);
        }
        self.readings.set(self.readings.get() + 1);
        self.held.get()
    }

    fn end_reading(&self, held: u64) {
        self.held.set(held);
        self.readings.set(self.readings.get() - 1);
        if self.readings.get() > 0 {
            return;
        }
        let mut account = self.account.take();
        let taken = self.steps_given.get() - self.steps_left.get();
        account.taken += taken;
        self.of_run.borrow_mut().taken += taken;
        self.of_files.borrow_mut().insert(self.main.take(), account);
        // Where nobody reads, nothing is counted.
        self.steps_left.set(u64::MAX);
        self.may_hold.set(u64::MAX);
        self.is_spent.set(false);
    }

    fn end_run(&self) {
        self.runs.set(self.runs.get() - 1);
        if self.runs.get() == 0 {
            self.of_run.take();
            self.of_files.take();
            self.made.take();
        }
    }

    fn refused(&self) -> Option<Refusal> {
        self.account.borrow().refused.clone().filter(|_| self.is_spent.get())
    }

    /// A file that was read, which may take more if it is another one.
    fn earn(&self, path: &Path, length: usize) {
        path.clone_into(&mut self.file.borrow_mut());
        self.line.set(0);
        let mut account = self.account.borrow_mut();
        if !account.files.insert(path.to_owned()) {
            return;
        }
        let length = length as u64;
        let earned = STEPS_PER_BYTE * length + STEPS_FOR_A_FILE;
        account.length += length;
        account.earned += earned;
        self.of_run.borrow_mut().earned += earned;
        self.steps_left.set(self.steps_left.get() + earned);
        self.steps_given.set(self.steps_given.get() + earned);
        self.may_hold.set(self.may_hold.get() + HELD_PER_BYTE * length);
    }

    fn step(&self, steps: u64, why: &str) -> bool {
        if self.readings.get() == 0 {
            return true;
        }
        let left = self.steps_left.get();
        self.steps_left.set(left.saturating_sub(steps));
        if left < steps {
            self.refuse(why);
        }
        !self.is_spent.get()
    }

    fn hold(&self, bytes: u64) -> bool {
        if self.readings.get() == 0 {
            return true;
        }
        let held = self.held.get() + bytes;
        if held > self.may_hold.get() {
            self.refuse(MEMORY);
        } else {
            self.held.set(held);
        }
        !self.is_spent.get()
    }

    fn refuse(&self, why: &str) {
        if self.is_spent.replace(true) {
            return;
        }
        let refusal = Refusal::new(&self.file.borrow(), self.line.get(), why, BY_HAND);
        self.account.borrow_mut().refused = Some(refusal);
    }
}

/// Files that count what is read of them. An editor gets no others.
pub struct Metered<'a> {
    below: &'a dyn Files,
    read: RefCell<Vec<PathBuf>>,
    known: RefCell<BTreeSet<PathBuf>>,
    parsed: RefCell<HashMap<(TypeId, PathBuf), Rc<dyn Any>>>,
}

impl Metered<'_> {
    /// A configuration as a format has it, made once while these files are read: a plan may ask for an edit of each of its lines.
    pub(crate) fn once<T: 'static>(&self, file: &Path, parse: impl FnOnce() -> Result<T>) -> Result<Rc<T>> {
        let key = (TypeId::of::<T>(), file.to_owned());
        let known = self.parsed.borrow().get(&key).cloned();
        if let Some(parsed) = known.and_then(|known| known.downcast().ok()) {
            return Ok(parsed);
        }
        let parsed = Rc::new(parse()?);
        self.parsed.borrow_mut().insert(key, Rc::<T>::clone(&parsed));
        Ok(parsed)
    }

    /// The files that were read, each once, in the order of the first time.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.read.borrow().clone()
    }
}

impl Files for Metered<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if !open() {
            return Err(spent());
        }
        let text = self.below.read(path)?;
        COUNTER.with(|counter| counter.earn(path, text.len()));
        let is_new = self.known.borrow_mut().insert(path.to_owned());
        if is_new {
            self.read.borrow_mut().push(path.to_owned());
        }
        if !step(STEPS_TO_READ * text.len()) || is_new && !hold(text.len()) {
            return Err(spent());
        }
        Ok(text)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = self.below.list(directory)?;
        if !step(STEPS_TO_OPEN + STEPS_TO_LIST * entries.len()) {
            return Err(spent());
        }
        Ok(entries)
    }

    fn real(&self, path: &Path) -> PathBuf {
        step(STEPS_TO_OPEN);
        self.below.real(path)
    }

    fn exists(&self, path: &Path) -> bool {
        step(STEPS_TO_OPEN) && self.below.exists(path)
    }
}

fn spent() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, "the files take more work than a configuration may take")
}

/// Text that a format puts together: variables in their places, parts that are joined; or what belongs to its bytes. It grows as
/// far as the budget goes and no further. Its copies count as well, and what is dropped is free again.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Evaluated<T: Copy = u8>(Vec<T>);

impl<T: Copy> Evaluated<T> {
    /// Whether there was room.
    pub(crate) fn push(&mut self, one: T) -> bool {
        self.extend(&[one])
    }

    /// Adds all of them, or none if there is no room.
    pub(crate) fn extend(&mut self, more: &[T]) -> bool {
        let has_room = step(more.len()) && hold(size_of_val(more));
        if has_room {
            self.0.extend_from_slice(more);
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.0.pop();
        release(last.map_or(0, |last| size_of_val(&last)));
        last
    }

    /// What is mended in place grows by nothing.
    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        self.0.last_mut()
    }
}

impl Evaluated {
    /// The bytes, which count until the reading ends.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl<T: Copy> Default for Evaluated<T> {
    fn default() -> Self {
        Evaluated(Vec::new())
    }
}

impl<T: Copy> Clone for Evaluated<T> {
    fn clone(&self) -> Self {
        let mut copy = Evaluated::default();
        copy.extend(self);
        copy
    }
}

impl<T: Copy> Drop for Evaluated<T> {
    fn drop(&mut self) {
        release(size_of_val(self.0.as_slice()));
    }
}

impl<T: Copy> Deref for Evaluated<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::editor;

    struct Memory(BTreeMap<PathBuf, String>);

    impl Files for Memory {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            let text = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
            Ok(text.clone().into_bytes())
        }

        fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
            Ok(self.0.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
        }
    }

    fn memory<T: Into<String>>(files: impl IntoIterator<Item = (String, T)>) -> Memory {
        Memory(files.into_iter().map(|(path, text)| (PathBuf::from(path), text.into())).collect())
    }

    /// Twenty lines of a tenant make a gigabyte.
    fn bomb() -> String {
        "Define A x\n".to_owned() + &"Define A ${A}${A}\n".repeat(40)
    }

    #[test]
    fn what_grows_without_an_end_is_refused_with_its_file_and_line() {
        let main = "Include /srv/tenant.conf\nProxyPass / http://127.0.0.1:1/\n".to_owned();
        let files =
            memory([("/etc/apache2/apache2.conf".to_owned(), main), ("/srv/tenant.conf".to_owned(), bomb())]);
        let apache = editor("apache").unwrap();
        let refusal = apache.read(Path::new("/etc/apache2/apache2.conf"), &files).unwrap_err();
        assert_eq!(refusal.file, Path::new("/srv/tenant.conf"));
        assert!((20..30).contains(&refusal.line), "{refusal}");
        assert!(refusal.reason.contains("more memory") && !refusal.by_hand.is_empty(), "{refusal}");
    }

    #[test]
    fn one_tenants_bomb_takes_nothing_from_the_next_tenants_file() {
        let files = memory([
            ("/a/apache2.conf".to_owned(), bomb()),
            ("/b/apache2.conf".to_owned(), "ProxyPass / http://127.0.0.1:1/\n".to_owned()),
        ]);
        let apache = editor("apache").unwrap();
        run(|| {
            for _ in 0..3 {
                assert!(apache.read(Path::new("/a/apache2.conf"), &files).is_err());
                assert_eq!(apache.read(Path::new("/b/apache2.conf"), &files).unwrap().settings.len(), 1);
            }
        });
    }

    #[test]
    fn what_is_read_over_and_over_in_a_run_is_refused_in_the_end() {
        let text = "ProxyPass / http://127.0.0.1:1/\n".to_owned() + &"# x\n".repeat(2_000);
        let files = memory([("/a/apache2.conf".to_owned(), text)]);
        let apache = editor("apache").unwrap();
        let read = || apache.read(Path::new("/a/apache2.conf"), &files).is_ok();
        assert!((0..5_000).all(|_| read()), "each is a run of its own");
        assert!(run(|| (0..100).all(|_| read())), "a plan reads a file some ten times");
        assert!(!run(|| (0..5_000).all(|_| read())));
        assert!(read());
    }

    #[test]
    fn a_configuration_in_many_files_is_as_harmless_as_a_long_one() {
        let site =
            |number: usize| format!("server {{ location / {{ proxy_pass http://127.0.0.1:{number}; }} }}\n");
        let mut files: Vec<(String, String)> =
            (1..6_000).map(|number| (format!("/etc/nginx/sites/{number}"), site(number))).collect();
        let main = "events {}\nhttp { include sites/*; }\n";
        files.push(("/etc/nginx/nginx.conf".to_owned(), main.to_owned()));
        let nginx = editor("nginx").unwrap();
        let reading = nginx.read(Path::new("/etc/nginx/nginx.conf"), &memory(files)).unwrap();
        assert_eq!(reading.settings.len(), 5_999);
    }

    #[test]
    fn text_that_is_dropped_is_free_again() {
        let files = memory([("/a".to_owned(), "x")]);
        let sum = within(Path::new("/a"), &files, |_| {
            let mut sum = 0;
            for _ in 0..100 {
                let mut text = Evaluated::default();
                assert!(text.extend(&[b'x'; 1 << 20]) && !is_spent());
                sum += text.len();
            }
            Ok(sum)
        });
        assert_eq!(sum, Ok(100 << 20));
    }
}
