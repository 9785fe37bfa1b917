//! Folds the text of `perf script` into samples by role, function and stack (pure). Names come from foreign
//! binaries; whatever they contain, a name stays one frame on one line.

use std::collections::{BTreeMap, HashMap};

use samehost_model::{FunctionSamples, Role, StackSamples};

/// Most stacks kept for an arm, and for all arms together: a report with many levels must stay small.
const MOST_STACKS: usize = 400;
const MOST_OF_ALL: usize = 4000;
const MOST_FUNCTIONS: usize = 300;
/// Longest name, in characters: C++ and Rust names can fill pages.
const LONGEST_NAME: usize = 120;
/// Bucket for functions and stacks dropped by the size limit.
const OTHER: &str = "[other]";
/// Suffix of kernel frames in a stack.
const KERNEL: &str = "_[k]";
/// Characters of a process's name that the kernel keeps (TASK_COMM_LEN).
const COMM: usize = 15;

type Function = (Role, String, bool);

#[derive(Debug)]
pub(crate) struct Folding {
    /// Pid of this process. Its children are clients, or servers if they run this program.
    own: u32,
    program: String,
    roles: HashMap<u32, Role>,
    /// The sample being read: its role and frames, the innermost first.
    sample: Option<(Role, Vec<(String, bool)>)>,
    pub(crate) samples: BTreeMap<Role, u64>,
    functions: BTreeMap<Function, u64>,
    stacks: BTreeMap<String, u64>,
}

impl Folding {
    pub(crate) fn new(own: u32, program: &str) -> Self {
        Folding {
            own,
            program: program.chars().take(COMM).collect(),
            roles: HashMap::from([(own, Role::Client)]),
            sample: None,
            samples: BTreeMap::new(),
            functions: BTreeMap::new(),
            stacks: BTreeMap::new(),
        }
    }

    /// Sets the role of these processes; the next trial may reuse pids.
    pub(crate) fn processes(&mut self, role: Role, pids: &[u32]) {
        self.roles.extend(pids.iter().filter(|pid| **pid != self.own).map(|pid| (*pid, role)));
    }

    /// Parses a line of `perf script -F pid,tid,event,ip,sym,dso --show-task-events`.
    pub(crate) fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.is_empty() {
            self.end();
        } else if let Some((task, event)) = text.split_once("PERF_RECORD_") {
            if pid(task.trim()).is_some() {
                self.task(event);
            }
        } else if let Some((address, rest)) = text.split_once(' ')
            && address.bytes().all(|byte| byte.is_ascii_hexdigit())
            && let Some((_, frames)) = &mut self.sample
        {
            frames.push(frame(address, rest));
        } else if let Some(pid) = text.split_whitespace().next().and_then(pid) {
            self.end();
            // An unknown process descends from one that was there at the start.
            self.sample = Some((self.roles.get(&pid).copied().unwrap_or(Role::Client), Vec::new()));
        }
    }

    /// A process was forked or executed another program.
    fn task(&mut self, event: &str) {
        if let Some(numbers) = event.strip_prefix("FORK(") {
            // FORK(child:thread):(parent:thread)
            let mut pids = Vec::new();
            for pair in numbers.split('(') {
                if let Ok(pid) = pair.split(':').next().unwrap_or_default().parse::<u32>() {
                    pids.push(pid);
                }
            }
            if let [child, parent] = pids[..]
                && child != parent
            {
                let role = self.roles.get(&parent).copied().unwrap_or(Role::Client);
                self.roles.insert(child, role);
            }
        } else if let Some((comm, pid)) = event.strip_prefix("COMM exec: ").and_then(named)
            // A server for this trial alone, such as the one at the other end of a socket pair.
            && comm == self.program
            && pid != self.own
        {
            self.roles.insert(pid, Role::Server);
        }
    }

    pub(crate) fn end(&mut self) {
        let Some((role, frames)) = self.sample.take() else { return };
        let (function, kernel) = frames.first().cloned().unwrap_or_else(|| ("[unknown]".to_owned(), false));
        let mut stack = role.name().to_owned();
        for (name, kernel) in frames.iter().rev() {
            stack.push(';');
            stack.push_str(name);
            if *kernel {
                stack.push_str(KERNEL);
            }
        }
        *self.samples.entry(role).or_default() += 1;
        *self.functions.entry((role, function, kernel)).or_default() += 1;
        *self.stacks.entry(stack).or_default() += 1;
    }

    /// Functions by their own samples, most first.
    pub(crate) fn functions(&self) -> Vec<FunctionSamples> {
        let mut all = Vec::with_capacity(self.functions.len());
        for ((role, function, kernel), samples) in &self.functions {
            all.push(FunctionSamples {
                role: *role,
                function: function.clone(),
                kernel: *kernel,
                samples: *samples,
            });
        }
        all.sort_by_key(|function| std::cmp::Reverse(function.samples));
        for few in all.split_off(all.len().min(MOST_FUNCTIONS)) {
            match all.iter_mut().find(|f| f.role == few.role && f.function == OTHER) {
                Some(other) => other.samples += few.samples,
                None => all.push(FunctionSamples { function: OTHER.into(), kernel: false, ..few }),
            }
        }
        all
    }

    /// Stacks, most samples first; fewer per arm if there are many arms.
    pub(crate) fn stacks(&self, arms: usize) -> Vec<StackSamples> {
        let most = MOST_STACKS.min(MOST_OF_ALL / arms.max(1));
        let mut all = Vec::with_capacity(self.stacks.len());
        for (stack, samples) in &self.stacks {
            all.push(StackSamples { stack: stack.clone(), samples: *samples });
        }
        all.sort_by_key(|stack| std::cmp::Reverse(stack.samples));
        for few in all.split_off(all.len().min(most)) {
            let role = few.stack.split(';').next().unwrap_or_default();
            let name = format!("{role};{OTHER}");
            match all.iter_mut().find(|stack| stack.stack == name) {
                Some(other) => other.samples += few.samples,
                None => all.push(StackSamples { stack: name, samples: few.samples }),
            }
        }
        all
    }
}

fn pid(text: &str) -> Option<u32> {
    let (pid, thread) = text.split_once('/')?;
    thread.parse::<u32>().ok()?;
    pid.parse().ok()
}

fn named(text: &str) -> Option<(&str, u32)> {
    let (name, task) = text.rsplit_once(':')?;
    Some((name, pid(task)?))
}

/// Parses a frame's name, and whether it is in the kernel: `ffffffff8169 vfs_read ([kernel.kallsyms])`.
fn frame(address: &str, rest: &str) -> (String, bool) {
    // The upper half of the address space is the kernel's, whatever the file is called.
    let kernel = address.len() == 16 && address.starts_with('f');
    let rest = rest.trim().trim_end_matches(" (deleted))");
    let (symbol, file) = rest.rsplit_once(" (").unwrap_or((rest, ""));
    let symbol = symbol.trim();
    let name = if symbol.is_empty() || symbol == "[unknown]" {
        let file = file.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
        format!("[{}]", file.trim_matches(['[', ']']))
    } else {
        without_hash(symbol).to_owned()
    };
    (clean(&name), kernel)
}

/// Removes the hash at the end of a Rust name, which changes with every build.
fn without_hash(symbol: &str) -> &str {
    match symbol.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

/// Removes `;`, newlines and repeated spaces, which are separators in folded stacks.
fn clean(name: &str) -> String {
    let mut clean = String::new();
    for c in name.chars().take(LONGEST_NAME) {
        match c {
            ';' => clean.push(':'),
            c if !c.is_control() && !c.is_whitespace() => clean.push(c),
            _ if clean.is_empty() || clean.ends_with(' ') => {}
            _ => clean.push(' '),
        }
    }
    clean.truncate(clean.trim_end().len());
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of perf 6.1, shortened: client 10 with a thread, server 20 with a child 21, and a server 31 for
    /// one trial.
    const SAID: &str = "\
    0/0     PERF_RECORD_COMM: samehost:10/10
   10/11    cpu-clock: \n\
\tffffffff81e77152 __x64_sys_write ([kernel.kallsyms])
\tffffffff821ecc51 do_syscall_64 ([kernel.kallsyms])
\t           f8350 __GI___libc_write (/usr/lib/x86_64-linux-gnu/libc.so.6)

   20/20    PERF_RECORD_FORK(21:21):(20:20)
   20/20    PERF_RECORD_FORK(20:22):(20:20)
   21/21    cycles: \n\
\tffffffffc0a01234 nf_hook_slow ([nf_tables])
\t           12345 [unknown] (/opt/a server/bin/db (deleted))

   10/10    PERF_RECORD_FORK(31:31):(10:10)
   31/31    PERF_RECORD_COMM exec: samehost:31/31
   31/31    cpu-clock: \n\
\t           777 samehost::serve<(u8, u8)>::h0123456789abcdef (/usr/bin/samehost)

   21/21    PERF_RECORD_EXIT(21:21):(20:20)
   10/11    cpu-clock: \n\
\tffffffff81e77152 __x64_sys_write ([kernel.kallsyms])
\tffffffff821ecc51 do_syscall_64 ([kernel.kallsyms])
\t           f8350 __GI___libc_write (/usr/lib/x86_64-linux-gnu/libc.so.6)
";

    fn folded(text: &str) -> Folding {
        let mut folding = Folding::new(10, "samehost");
        folding.processes(Role::Server, &[20]);
        text.lines().for_each(|line| folding.line(line));
        folding.end();
        folding
    }

    #[test]
    fn samples_fall_to_roles_functions_and_stacks() {
        let folding = folded(SAID);
        assert_eq!(folding.samples, BTreeMap::from([(Role::Client, 2), (Role::Server, 2)]));
        let stacks: Vec<(String, u64)> =
            folding.stacks(2).into_iter().map(|stack| (stack.stack, stack.samples)).collect();
        assert_eq!(
            stacks,
            [
                ("client;__GI___libc_write;do_syscall_64_[k];__x64_sys_write_[k]".to_owned(), 2),
                ("server;[db];nf_hook_slow_[k]".to_owned(), 1),
                ("server;samehost::serve<(u8, u8)>".to_owned(), 1),
            ]
        );
        let functions = folding.functions();
        let first = &functions[0];
        assert_eq!((first.function.as_str(), first.kernel, first.samples), ("__x64_sys_write", true, 2));
        assert!(
            functions.iter().any(|f| f.function == "nf_hook_slow" && f.kernel),
            "a module is the kernel's"
        );
        assert!(functions.iter().any(|f| f.function.starts_with("samehost") && !f.kernel));
    }

    #[test]
    fn hostile_names_stay_one_frame() {
        let text = format!(
            "10/10 cpu-clock:\n\t 1 a;b\u{1b}[31m <script> 12 (/x)\n\t 2 {} (/y)\n\t 3 PERF_RECORD_FORK(99:99):(20:20) (/z)\n\n99/99 cpu-clock:\n\t 1 f (/x)\n",
            "n".repeat(5000)
        );
        let folding = folded(&text);
        assert_eq!(folding.samples, BTreeMap::from([(Role::Client, 2)]), "a name makes no process");
        let stacks = folding.stacks(2);
        let hostile = stacks.iter().find(|stack| stack.stack.contains("script")).unwrap();
        let frames: Vec<&str> = hostile.stack.split(';').collect();
        assert_eq!(frames.len(), 3 + usize::from(hostile.stack.contains("PERF_RECORD")), "{frames:?}");
        assert_eq!(frames.last(), Some(&"a:b [31m <script> 12"));
        assert!(frames.iter().all(|frame| frame.chars().count() <= LONGEST_NAME));
        assert!(!hostile.stack.chars().any(char::is_control));
    }

    #[test]
    fn what_is_rare_is_lumped_together_and_nothing_is_lost() {
        let mut lines = String::new();
        for number in 0..2000 {
            let pid = if number % 2 == 0 { 10 } else { 20 };
            lines.push_str(&format!("{pid}/{pid} cpu-clock:\n\t 1 f{number} (/x)\n\n"));
        }
        let folding = folded(&lines);
        let (stacks, functions) = (folding.stacks(2), folding.functions());
        assert_eq!((stacks.len(), functions.len()), (MOST_STACKS + 2, MOST_FUNCTIONS + 2));
        assert_eq!(stacks.iter().map(|stack| stack.samples).sum::<u64>(), 2000);
        assert_eq!(functions.iter().map(|function| function.samples).sum::<u64>(), 2000);
        assert!(stacks.iter().any(|stack| stack.stack == "server;[other]" && stack.samples > 700));
        assert_eq!(folding.stacks(33).len(), MOST_OF_ALL / 33 + 2, "eleven levels of three arms");
    }
}
