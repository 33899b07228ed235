//! Cases on several hosts and devices, with real connections and real faults (tests/lab/README.md).

mod cases;
mod clusters;
mod devices;
mod faults;
mod peak;
mod site;

/// The scripts of tests/lab find what an ended process left behind by its identity.
#[test]
fn the_owner_of_a_lab_is_a_process_that_runs() {
    let print = |command: &str| {
        let script = format!("set -Eeuo pipefail; . tests/lab/owner; {command}");
        let output = assert_cmd::Command::new("bash").args(["-c", &script]).output().expect("bash");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    for process in ["", "0", "self", "999999999"] {
        assert_eq!(print(&format!("identity '{process}'")), (true, String::new()), "{process}");
    }
    let own = std::process::id();
    let (found, identity) = print(&format!("LAB_OWNER={own} owner_identity"));
    assert!(found && identity.starts_with(&format!("{own}.")), "{identity}");
    let (found, reason) = print("LAB_OWNER=999999999 owner_identity");
    assert!(!found && reason.contains("the owner, process 999999999, has ended"), "{reason}");
}
