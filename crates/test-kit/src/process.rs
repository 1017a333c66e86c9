//! Child processes that never outlive the tests, each with a log file.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// How many lines of a log a failure shows.
const TAIL: usize = 40;

/// A running program. Dropping it kills and reaps it.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` and appends its output to `<dir>/<program's name>.log`.
    pub fn start(program: &Path, arguments: &[String], dir: &Path) -> Self {
        Self::start_as(None, program, arguments, dir)
    }

    /// Starts `program` as another user of this machine.
    pub fn start_as(account: Option<&Account>, program: &Path, arguments: &[String], dir: &Path) -> Self {
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        let log = dir.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = command_that_dies_with_us(account, program);
        command
            .args(arguments)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let child = spawn(command).unwrap_or_else(|e| panic!("cannot start {}: {e}", program.display()));
        Self { name, child, log }
    }

    /// The process id; it is the program's, because `setpriv` replaces itself by the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks the program by `signal` to end, and kills it after `grace`.
    pub fn end_by(mut self, signal: &str, grace: Duration) {
        let asked = Command::new("kill").args(["-s", signal, &self.id().to_string()]).status();
        let deadline = Instant::now() + grace;
        while asked.is_ok() && self.exited().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Panics with the end of the log if the program has ended.
    pub fn assert_running(&mut self) {
        if let Some(status) = self.exited() {
            panic!("{} ({}) ended with {status}; its log ends:\n{}", self.name, self.id(), self.tail());
        }
    }

    /// The last lines of the log.
    pub fn tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_else(|e| format!("(no log: {e})"));
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// How the program ended, if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the child has ended and was reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of 127.0.0.1 on which nobody listens. It is below the range that the kernel uses for outgoing connections, so
/// a server can be stopped and come back on it.
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
        let spread = std::process::id().wrapping_mul(97) % u32::from(COUNT);
        AtomicU16::new(u16::try_from(spread).unwrap())
    });
    (0..COUNT)
        .map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("no free port on 127.0.0.1")
}

/// A user of this machine for programs that refuse to run as root.
pub struct Account {
    pub user: u32,
    pub group: u32,
}

impl Account {
    /// The first of these users that exists, if the tests run as root.
    pub fn instead_of_root(names: &[&str]) -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let found = names.iter().find_map(|name| users.lines().find_map(|line| Self::parse(line, name)));
        Some(found.unwrap_or_else(|| panic!("none of the users {names:?} exists")))
    }

    fn parse(line: &str, name: &str) -> Option<Self> {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        Some(Self { user: fields.nth(1)?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }
}

/// A command for a child that, on Linux, the kernel kills when the thread that spawned it ends in any way, also by
/// SIGKILL.
pub fn command_that_dies_with_us(account: Option<&Account>, program: &Path) -> Command {
    if !cfg!(target_os = "linux") {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    if let Some(Account { user, group }) = account {
        command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]);
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Spawns from a thread that runs as long as the process: the kernel sends the parent-death signal when the *thread*
/// that spawned the child ends, and a test's thread may end before its hub.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                reply.send(command.spawn()).expect("the caller waits for the child");
            }
        });
        orders
    });
    let (reply, child) = mpsc::channel();
    SPAWNER.send((command, reply)).expect("the spawner never ends");
    child.recv().expect("the spawner answers")
}
