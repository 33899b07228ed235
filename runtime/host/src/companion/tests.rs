//! Tests of companion processes.

use super::*;

fn shell(script: &str) -> CompanionProcess {
    let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
    let environment = vec![("GREETING", "hello".into())];
    CompanionProcess::start(&CompanionCommand { argv, folder: "/".into(), environment }).unwrap()
}

fn read_line(companion: &mut CompanionProcess) -> Option<String> {
    match companion.read_line(Seconds(0.001), None).unwrap() {
        CompanionOutput::Line(line) => Some(String::from_utf8_lossy(line).into_owned()),
        CompanionOutput::End(b"") => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_companion_replies_line_by_line_in_its_folder_with_its_variables() {
    let mut companion = shell("read a; echo $a $GREETING; read b; echo $b $PWD");
    companion.write_line(b"one\n").unwrap();
    assert_eq!(read_line(&mut companion).as_deref(), Some("one hello"));
    assert!(crate::descendants_peak() > 100_000);
    companion.write_line(b"two\n").unwrap();
    assert_eq!(read_line(&mut companion).as_deref(), Some("two /"));
    assert_eq!(read_line(&mut companion), None);
    assert_eq!(companion.end(), Ending::Exited(0));
}

#[test]
fn closing_its_input_ends_a_companion() {
    assert_eq!(shell("cat; exit 4").end(), Ending::Exited(4));
}

#[test]
fn a_companion_that_is_silent_or_never_ends_its_line_is_late() {
    for script in ["read end", "while :; do printf x; sleep 0.02 & read -t 0.02 end && exit; done"] {
        let mut companion = CompanionProcess::start(&CompanionCommand {
            argv: ["/bin/bash", "-c", script].map(OsString::from).to_vec(),
            folder: "/".into(),
            environment: Vec::new(),
        })
        .unwrap();
        let late = companion.read_line(Seconds(0.001), Some(Seconds(0.2))).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{script}");
        companion.write_line(b"end\n").unwrap();
    }
}

#[test]
fn the_last_lines_of_a_failed_companion_are_kept() {
    let mut companion = shell("echo why >&2; exit 3");
    assert_eq!(read_line(&mut companion), None);
    assert_eq!((companion.end(), companion.last_stderr_lines()), (Ending::Exited(3), vec!["why".to_owned()]));
}

#[test]
fn a_companion_that_does_not_end_is_killed() {
    let mut companion = shell("trap '' TERM; echo up; while :; do sleep 1; done");
    assert_eq!(read_line(&mut companion).as_deref(), Some("up"));
    assert_eq!((companion.end(), companion.was_killed()), (Ending::Killed(9), true));
}

#[test]
fn the_end_of_a_companion_is_noticed_while_its_child_keeps_the_pipes_open() {
    let mut companion = shell("sleep 60 & echo $!; printf half; exit 3");
    let child = read_line(&mut companion).unwrap();
    assert_eq!(companion.read_line(Seconds(0.001), None).unwrap(), CompanionOutput::End(b"half"));
    assert_eq!((companion.end(), companion.was_killed()), (Ending::Exited(3), false));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.parse().unwrap()), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
}

#[test]
fn an_endless_line_is_truncated_on_both_pipes() {
    let mut companion = shell("head -c 20000000 /dev/zero >&2; echo >&2; echo the end >&2; cat /dev/zero");
    let CompanionOutput::TooLong(line) = companion.read_line(Seconds(0.001), None).unwrap() else { panic!("a line") };
    assert!((LINE_BYTES_MAX..LINE_BYTES_MAX + (1 << 16)).contains(&line.len()));
    companion.end();
    let last = companion.last_stderr_lines();
    assert_eq!((last.len(), last[1].as_str()), (2, "the end"));
    assert!(last[0].ends_with("... (19999000 more bytes)") && last[0].len() < 2000, "{}", last[0].len());
}

#[test]
fn a_program_with_a_slash_is_relative_to_the_folder() {
    let command = |argv: &str, folder: &str| CompanionCommand {
        argv: vec![argv.into()],
        folder: folder.into(),
        environment: Vec::new(),
    };
    assert_eq!(CompanionProcess::start(&command("bin/true", "/")).unwrap().end(), Ending::Exited(0));
    let missing = CompanionProcess::start(&command("engines/none", "/")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot start `engines/none`: "), "{missing}");
    let missing = CompanionProcess::start(&command("true", "/no/such/folder")).unwrap_err().to_string();
    assert!(missing.contains("the folder `/no/such/folder` does not exist"), "{missing}");
}
