//! Logs, further processes, terminals, and those who are attached.

use std::fs;
use std::time::Duration;

use ferrokube_containers::{Attached, Container, Exec, ExecSpec, State};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{LONG, Place, spec, until, wait};

pub(crate) fn exec_spec(args: &[&str]) -> ExecSpec {
    let process = spec(args, |_| {}).process().clone().unwrap();
    ExecSpec { process, terminal: false, stdin: false, stdout: true, stderr: true }
}

/// Runs a further process to its end: its exit code, and all that it wrote.
pub(crate) async fn exec(container: &Container, args: &[&str]) -> (i32, String) {
    ended(container.exec(exec_spec(args)).await.unwrap()).await
}

/// Waits for the end of a further process: its exit code, and all that it wrote.
pub(crate) async fn ended(mut exec: Exec) -> (i32, String) {
    let (mut out, mut err) = (exec.stdout.take().unwrap(), exec.stderr.take().unwrap());
    let (mut text, mut errors) = (String::new(), String::new());
    let done = async {
        let (a, b) = tokio::join!(out.read_to_string(&mut text), err.read_to_string(&mut errors));
        (a.unwrap(), b.unwrap())
    };
    tokio::time::timeout(LONG, done).await.unwrap();
    let exit = tokio::time::timeout(LONG, exec.wait()).await.unwrap();
    (exit.code, text + &errors)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_has_no_returns_before_newlines() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let script = "printf 'one\\r\\na\\rb\\r\\r\\n\\r\\n'; \
                  head -c 16384 /dev/zero | tr '\\0' x; printf '\\r\\nend\\r'";
    let container = sandbox.create(place.container("c", &["sh", "-c", script])).await.unwrap();
    container.start().await.unwrap();
    wait(&container).await;
    let log = fs::read_to_string(place.log("c")).unwrap();
    let all = log.split_terminator('\n').map(|l| l.splitn(3, ' ').nth(2).unwrap());
    let texts: Vec<&str> = all.filter(|text| !text.contains('x') && *text != "F ").collect();
    assert_eq!(texts, ["F one", "F a\rb\r", "P end\r"], "{log}");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_has_whole_and_partial_lines() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let script = "head -c 40000 /dev/zero | tr '\\0' x; echo; echo short; echo; printf unfinished";
    let container = sandbox.create(place.container("c", &["sh", "-c", script])).await.unwrap();
    container.start().await.unwrap();
    wait(&container).await;
    let log = fs::read_to_string(place.log("c")).unwrap();
    let lines: Vec<(&str, usize, &str)> = log
        .lines()
        .map(|l| {
            let words: Vec<&str> = l.splitn(4, ' ').collect();
            assert_eq!(words[1], "stdout");
            assert_eq!(words[0].len(), "2006-01-02T15:04:05.000000000Z".len());
            let _: jiff::Timestamp = words[0].parse().unwrap();
            (words[2], words[3].len(), words[3].get(..4).unwrap_or(words[3]))
        })
        .collect();
    let expected = [
        ("P", 16384, "xxxx"),
        ("P", 16384, "xxxx"),
        ("F", 7232, "xxxx"),
        ("F", 5, "shor"),
        ("F", 0, ""),
        ("P", 10, "unfi"),
    ];
    assert_eq!(lines, expected);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn much_output_is_whole_and_in_order() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let (code, output) = place.run(&sandbox, place.container("c", &["seq", "1", "200000"])).await;
    assert_eq!(code, 0);
    let mut next = 1;
    for line in output.lines() {
        assert_eq!(line, next.to_string());
        next += 1;
    }
    assert_eq!(next, 200_001);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_opened_anew() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let script = "i=0; while true; do echo $i; i=$((i+1)); sleep 0.01; done";
    let container = sandbox.create(place.container("c", &["sh", "-c", script])).await.unwrap();
    container.start().await.unwrap();
    let old = place.directory.path().join("old");
    until("output", || place.output("c").lines().count() > 3).await;
    fs::rename(place.log("c"), &old).unwrap();
    container.reopen_log().await.unwrap();
    until("output in the new file", || place.output("c").lines().count() > 3).await;
    container.kill(9).await.unwrap();
    wait(&container).await;
    let numbers = |text: String| -> Vec<u32> {
        text.lines().map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    let mut all = numbers(fs::read_to_string(old).unwrap());
    all.extend(numbers(fs::read_to_string(place.log("c")).unwrap()));
    assert!(all.iter().copied().eq(0..all.len() as u32), "{all:?}");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_holds_nothing_up() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let mut container = place.container("c", &["sh", "-c", "seq 1 100000; exit 5"]);
    container.io.log_path = Some("/dev/full".into());
    let container = sandbox.create(container).await.unwrap();
    container.start().await.unwrap();
    assert_eq!(wait(&container).await.code, 5);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_process_is_in_the_container() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let container = sandbox.create(place.container("c", &["sleep", "1000"])).await.unwrap();
    assert!(
        container.exec(exec_spec(&["true"])).await.unwrap_err().to_string().contains("it is not started")
    );
    container.start().await.unwrap();
    let (code, output) = exec(
        &container,
        &["sh", "-c", "cat /proc/1/comm; hostname; ls /proc/self/fd | wc -l; echo err >&2; exit 9"],
    )
    .await;
    assert_eq!((code, output.as_str()), (9, "sleep\npod\n4\nerr\n"));
    let (_, same) = exec(&container, &["sh", "-c", "for n in net ipc uts pid mnt; do test $(readlink /proc/1/ns/$n) = $(readlink /proc/self/ns/$n) && echo $n; done; cat /proc/self/cgroup | grep -c ferrokube-test; cat /proc/self/cgroup | wc -l"]).await;
    assert!(same.starts_with("net\nipc\nuts\npid\nmnt\n"), "{same}");
    let error = container.exec(exec_spec(&["nosuch"])).await.unwrap_err();
    assert_eq!(error.to_string(), "exec: \"nosuch\": executable file not found in $PATH");
    // Input, and its end.
    let mut spec = exec_spec(&["cat"]);
    spec.stdin = true;
    let mut cat = container.exec(spec).await.unwrap();
    let mut stdin = cat.stdin.take().unwrap();
    stdin.write_all(b"through").await.unwrap();
    drop(stdin);
    let mut text = String::new();
    tokio::time::timeout(LONG, cat.stdout.take().unwrap().read_to_string(&mut text)).await.unwrap().unwrap();
    assert_eq!((text.as_str(), cat.wait().await.code), ("through", 0));
    // A signal ends one, and the container's end does.
    let sleeper = container.exec(exec_spec(&["sleep", "1000"])).await.unwrap();
    sleeper.control().kill(15).unwrap();
    assert_eq!(sleeper.wait().await.code, 143);
    let sleeper = container.exec(exec_spec(&["sleep", "1000"])).await.unwrap();
    container.kill(9).await.unwrap();
    wait(&container).await;
    assert_eq!(tokio::time::timeout(LONG, sleeper.wait()).await.unwrap().code, 137);
    assert!(container.exec(exec_spec(&["true"])).await.unwrap_err().to_string().contains("it has ended"));
    place.end().await;
}

async fn read_until(stream: &mut ferrokube_containers::Stream, wanted: &str) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = tokio::time::timeout(LONG, stream.read(&mut buffer)).await.expect("output").unwrap();
        all.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains(wanted) {
            return text;
        }
        assert!(n > 0, "{text:?} ends without {wanted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_process_has_a_terminal() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let container = sandbox.create(place.container("c", &["sleep", "1000"])).await.unwrap();
    container.start().await.unwrap();
    let mut spec = exec_spec(&["sh"]);
    (spec.terminal, spec.stdin) = (true, true);
    let mut shell = container.exec(spec).await.unwrap();
    shell.control().resize(101, 37).unwrap();
    let (mut stdin, mut stdout) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    assert!(shell.stderr.is_none());
    stdin.write_all(b"tty; stty size; echo en''d\n").await.unwrap();
    let text = read_until(&mut stdout, "end\r\n").await;
    assert!(text.contains("/dev/pts/0\r\n37 101\r\n"), "{text:?}");
    // The terminal's own keys.
    stdin.write_all(b"echo be''gin; sleep 1000\n").await.unwrap();
    read_until(&mut stdout, "begin\r\n").await;
    // The key may come before the shell has given the terminal to its child, and throws away what was typed before it.
    let mut asked = tokio::time::interval(Duration::from_millis(300));
    let typed = async {
        for typed in [b"\x03".as_slice(), b"exit 4\n"].into_iter().cycle() {
            asked.tick().await;
            if stdin.write_all(typed).await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let mut rest = Vec::new();
    let over = async {
        tokio::select! {
            read = stdout.read_to_end(&mut rest) => { read.unwrap(); }
            () = typed => {}
        }
    };
    tokio::time::timeout(LONG, over).await.unwrap();
    assert_eq!(tokio::time::timeout(LONG, shell.wait()).await.unwrap().code, 4);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_a_terminal_and_many_are_attached() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let mut spec = place.container("c", &["sh"]);
    (spec.io.terminal, spec.io.stdin) = (true, true);
    let container = sandbox.create(spec).await.unwrap();
    let mut first = container.attach(true).await.unwrap();
    let mut second = container.attach(false).await.unwrap();
    container.start().await.unwrap();
    container.resize(90, 20).await.unwrap();
    assert!(first.terminal && first.stderr.is_none() && second.stdin.is_none());
    let mut stdin = first.stdin.take().unwrap();
    stdin.write_all(b"tty; stty size; ls -l /dev/console | cut -c1; echo en''d\n").await.unwrap();
    for attached in [&mut first, &mut second] {
        let text = read_until(attached.stdout.as_mut().unwrap(), "end\r\n").await;
        assert!(text.contains("/dev/pts/0\r\n20 90\r\nc\r\n"), "{text:?}");
    }
    drop(second);
    stdin.write_all(b"exit 6\n").await.unwrap();
    assert_eq!(wait(&container).await.code, 6);
    assert!(place.output("c").contains("20 90"));
    assert!(container.attach(false).await.unwrap_err().to_string().contains("it has ended"));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_ends_with_the_first_who_left_or_goes_on() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    for once in [true, false] {
        let id = if once { "once" } else { "more" };
        let mut spec = place.container(id, &["cat"]);
        (spec.io.stdin, spec.io.stdin_once) = (true, once);
        let container = sandbox.create(spec).await.unwrap();
        container.start().await.unwrap();
        let Attached { stdin, stdout, .. } = container.attach(true).await.unwrap();
        let (mut stdin, mut stdout) = (stdin.unwrap(), stdout.unwrap());
        stdin.write_all(b"first\n").await.unwrap();
        read_until(&mut stdout, "first\n").await;
        drop((stdin, stdout));
        if once {
            assert_eq!(wait(&container).await.code, 0);
        } else {
            let Attached { stdin, stdout, .. } = container.attach(true).await.unwrap();
            let (mut stdin, mut stdout) = (stdin.unwrap(), stdout.unwrap());
            stdin.write_all(b"second\n").await.unwrap();
            read_until(&mut stdout, "second\n").await;
            drop(stdin);
            container.close_stdin().await.unwrap();
            assert_eq!(wait(&container).await.code, 0);
            let mut rest = Vec::new();
            tokio::time::timeout(LONG, stdout.read_to_end(&mut rest)).await.unwrap().unwrap();
        }
    }
    assert_eq!(place.output("more"), "first\nsecond\n");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_does_not_read_is_let_go() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let container = sandbox.create(place.container("c", &["seq", "1", "100000"])).await.unwrap();
    let attached = container.attach(false).await.unwrap();
    let started = tokio::time::Instant::now();
    container.start().await.unwrap();
    assert_eq!(wait(&container).await.code, 0);
    assert!(started.elapsed() >= Duration::from_secs(5), "it was waited for");
    assert!(place.output("c").ends_with("\n100000\n"));
    drop(attached);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_reads_slowly_gets_everything() {
    let place = Place::new();
    let sandbox = place.start("one").await;
    let container = sandbox
        .create(place.container("c", &["sh", "-c", "seq 1 50000; echo en''d; sleep 1000"]))
        .await
        .unwrap();
    let mut attached = container.attach(false).await.unwrap();
    container.start().await.unwrap();
    let text = read_until(attached.stdout.as_mut().unwrap(), "end\n").await;
    assert_eq!(text.lines().count(), 50_001);
    assert_eq!(container.state(), State::Running);
    place.end().await;
}
