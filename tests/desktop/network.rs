//! Network test: the program runs under a seccomp filter that kills a process which opens a network socket (IPv4, IPv6).
//! The sockets that the window needs, of the display and the session bus, are local.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition, SeccompFilter,
    SeccompRule as Rule, apply_filter,
};

use strata::gpu::FeatureOverrides;

use crate::common::gpu;

/// Longest time that a software device takes to load the model and answer.
const PATIENCE: Duration = Duration::from_secs(240);

/// Filter that kills a process which opens a network socket.
fn filter() -> BpfProgram {
    let family = |family: libc::c_int| {
        let is_it = Condition::new(0, Len::Dword, Op::Eq, u64::try_from(family).unwrap()).unwrap();
        Rule::new(vec![is_it]).unwrap()
    };
    let rules = [(libc::SYS_socket, vec![family(libc::AF_INET), family(libc::AF_INET6)])];
    let arch = std::env::consts::ARCH.try_into().unwrap();
    SeccompFilter::new(rules.into(), SeccompAction::Allow, SeccompAction::KillProcess, arch).unwrap().try_into().unwrap()
}

/// The command and its children under the filter, with settings and chats in a folder of the test.
fn confined(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let filter = filter();
    let mut command = Command::new(program);
    command.env("HOME", home).env("XDG_RUNTIME_DIR", home).stdin(Stdio::null());
    for (name, below) in [("CONFIG", "config"), ("DATA", "data"), ("STATE", "state"), ("CACHE", "cache")] {
        command.env(format!("XDG_{name}_HOME"), home.join(below));
    }
    // SAFETY: between fork and exec only two system calls are made, on memory that was allocated before.
    unsafe {
        command.pre_exec(move || apply_filter(&filter).map_err(|_| std::io::Error::last_os_error()));
    }
    command
}

/// A child process that is killed with its test.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn was_denied(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGSYS)
}

#[test]
fn filter_kills_a_process_that_opens_a_network_socket() {
    let home = tempfile::tempdir().unwrap();
    let asks = "exec 3<>/dev/tcp/127.0.0.1/9";
    match confined("bash", home.path()).args(["-c", asks]).stderr(Stdio::null()).status() {
        Ok(status) => assert!(was_denied(status), "{status}"),
        Err(error) => eprintln!("skipped: filter_ends_what_asks_for_a_socket: bash: {error}"),
    }
}

#[test]
fn question_about_a_document_is_answered_without_a_network() {
    if gpu("question_about_a_document_is_answered_without_a_network", FeatureOverrides::default()).is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/sample-document.md");
    let mut ask = confined(env!("CARGO_BIN_EXE_strata"), home.path());
    let ask = ask.args(["ask", "--max-tokens", "4", "--prompt", "What is the annual budget of Somiko?", "--doc"]).arg(document);
    let said = ask.output().unwrap();
    assert!(said.status.success(), "{}: {}", said.status, String::from_utf8_lossy(&said.stderr));
    assert!(!said.stdout.is_empty());
}

/// Draws on a virtual display until the log reports the loaded model. By then the window has used settings, fonts, the
/// session bus, the GPU and the document reader.
#[test]
fn window_opens_loads_its_model_and_reads_a_document_without_a_network() {
    const NAME: &str = "window_opens_loads_its_model_and_reads_a_document_without_a_network";
    if gpu(NAME, FeatureOverrides::default()).is_none() {
        return;
    }
    let Some((_display, number)) = display() else { return eprintln!("skipped: {NAME}: no Xvfb") };
    let home = tempfile::tempdir().unwrap();
    let document = home.path().join("notes.html");
    std::fs::write(&document, "<p>The password of the vault is xyzzyplugh.</p>".repeat(40)).unwrap();
    let mut window = confined(env!("CARGO_BIN_EXE_strata"), home.path());
    let window = window.arg(&document).env("DISPLAY", format!(":{number}")).env_remove("WAYLAND_DISPLAY").stderr(Stdio::piped());
    let mut window = Reaped(window.spawn().unwrap());
    let log = || std::fs::read_to_string(home.path().join("state/strata/strata.log")).unwrap_or_default();
    let began = Instant::now();
    while !(log().contains("model loaded") && log().contains("document opened")) {
        if let Some(status) = window.0.try_wait().unwrap() {
            let mut said = String::new();
            window.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("the window ended, {status} (denied a socket: {}): {said}\n{}", was_denied(status), log());
        }
        assert!(began.elapsed() < PATIENCE, "timed out:\n{}", log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!log().contains("xyzzyplugh") && !log().contains("vault"), "{}", log());
    // A second start hands its documents over and exits with success.
    let mut second = confined(env!("CARGO_BIN_EXE_strata"), home.path());
    let second = second.arg(&document).env("DISPLAY", format!(":{number}")).env_remove("WAYLAND_DISPLAY").status().unwrap();
    assert!(second.success(), "{second}");
    assert!(window.0.try_wait().unwrap().is_none(), "the first still runs");
}

/// A virtual display that ends with the test.
fn display() -> Option<(Reaped, String)> {
    let mut server = Command::new("Xvfb");
    // It prints its free display number on its output.
    let server = server.args(["-displayfd", "1", "-screen", "0", "1024x768x24", "-nolisten", "tcp"]);
    let mut server = Reaped(server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?);
    let mut number = String::new();
    let mut byte = [0];
    let mut out = server.0.stdout.take()?;
    while out.read(&mut byte).ok()? == 1 && byte != *b"\n" {
        number.push(char::from(byte[0]));
    }
    (!number.is_empty()).then_some((server, number))
}
