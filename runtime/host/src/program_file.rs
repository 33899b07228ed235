//! Finds the file that a command starts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::open_regular;

/// Longest first line of a script that the kernel reads.
const FIRST_LINE_BYTES_MAX: u64 = 256;
/// Largest number of scripts of which one starts the next.
const SCRIPTS_MAX: usize = 4;
/// The program that looks up another one on `PATH`.
const ENV: &str = "env";

/// Returns the program that a command starts in a folder, without links. For a script in the folder, this is the program that its
/// first line names; any other script counts as a program itself. `None` when there is no such file.
pub fn program_file(name: &OsStr, folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let mut program = find(name, &folder)?;
    for _ in 0..SCRIPTS_MAX {
        match first_line_program(&program).filter(|_| program.starts_with(&folder)) {
            Some(next) => program = find(&next, &folder)?,
            None => break,
        }
    }
    Some(program)
}

/// Finds a program: a name without a slash on `PATH`, another one relative to `folder`.
fn find(name: &OsStr, folder: &Path) -> Option<PathBuf> {
    let candidates = match name.as_bytes().contains(&b'/') {
        true => vec![folder.join(name)],
        false => env::split_paths(&env::var_os("PATH")?).map(|path| folder.join(path).join(name)).collect(),
    };
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    candidates.into_iter().find(is_program)?.canonicalize().ok()
}

/// Returns the program that the first line of a script names, also with `env`: `#!/usr/bin/env python3`.
fn first_line_program(script: &Path) -> Option<OsString> {
    let mut text = Vec::new();
    open_regular(script).ok()?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut text).ok()?;
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let program = words.next()?;
    let looked_up = (Path::new(program).file_name() == Some(OsStr::new(ENV)))
        .then(|| words.find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=')));
    Some(looked_up.flatten().unwrap_or(program).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_followed_to_its_program_through_scripts_of_its_folder_only() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let script = |folder: &Path, name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path.canonicalize().unwrap()
        };
        let program_of = |name: &str| program_file(OsStr::new(name), own.path());
        let shell = fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(program_of("sh"), Some(shell.clone()));
        assert_eq!(program_of("no-such-program"), None);
        for first_line in ["#!/bin/sh", "#! /usr/bin/env sh", "#!/usr/bin/env -S A=1 sh -e"] {
            script(own.path(), "run", &format!("{first_line}\nexec true\n"));
            assert_eq!(program_of("./run"), Some(shell.clone()), "{first_line}");
        }
        script(own.path(), "twice", "#!./run\n");
        assert_eq!(program_of("./twice"), Some(shell));
        let wrapper = script(other.path(), "python3", "#!/bin/sh\nexec python3\n");
        assert_eq!(program_of(wrapper.to_str().unwrap()), Some(wrapper.clone()));
        script(own.path(), "wrapped", &format!("#!{}\n", wrapper.display()));
        assert_eq!(program_of("./wrapped"), Some(wrapper));
        fs::write(own.path().join("data"), "x").unwrap();
        assert_eq!(program_of("./data"), None, "it is not executable");
    }
}
