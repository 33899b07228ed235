//! Code that a sidecar executes is in the record, or the verdict has a reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use flagperf_core::hash::hash_bytes;

use super::adaptor::{OWN, engine, quick};
use crate::support::site::Site;
use crate::support::{self, program};

#[test]
fn the_modules_that_the_class_imports_are_hashed() {
    let text = quick("import sys", "import subprocess, sys")
        .replace("self.session =", "import helper\n        self.session =");
    let Some(site) = engine(&format!("import os, sys\nsys.path.append(os.path.abspath('../../outside'))\n{text}"))
    else {
        return;
    };
    site.write("outside/helper.py", "answer = 42\n");
    let record = site.run_successfully(&[]);
    let sidecar = &record["phases"][1]["engine"]["sidecar"];
    let modules = sidecar["modules_sha256"].as_object().expect("modules");
    let helper = site.path().join("outside/helper.py");
    let expected = hash_bytes(b"answer = 42\n");
    assert_eq!(modules[helper.to_str().expect("a path")], expected, "{modules:?}");
    let has = |end: &str| modules.keys().any(|path| path.ends_with(end));
    assert!(has("site-packages/onnxruntime") && has("vendors/side/engines/own.py"), "{modules:?}");
    assert!(modules.keys().any(|path| path.contains("/lib/python3")) && modules.len() < 500, "{modules:?}");
    assert!(sidecar.get("modules_not_hashed").is_none(), "{sidecar}");
}

#[test]
fn code_from_memory_and_a_module_that_the_class_hides_are_reasons_of_the_verdict() {
    let hidden = "
import mmap, os
code = os.memfd_create('code')
os.ftruncate(code, 4096)
mapped = mmap.mmap(code, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
for name in list(sys.modules):
    if name.split('.')[0] == 'onnxruntime':
        del sys.modules[name]
";
    let text = quick("import sys", "import subprocess, sys");
    let reasons =
        |text: &str| -> Option<String> { Some(engine(text)?.run_successfully(&[])["validity"]["reasons"].to_string()) };
    let Some(honest) = reasons(&text) else { return };
    for reason in ["code was executed", "did not report", "hid the code", "no modules", "the sidecar's `command`"] {
        assert!(!honest.contains(reason), "{honest}");
    }
    let found = reasons(&format!("{text}{hidden}")).expect("a Python");
    assert!(found.contains("infer: code was executed from files that do not exist: /memfd:code (deleted)"), "{found}");
    assert!(found.contains("infer: the sidecar executed modules that it did not report: "), "{found}");
}

#[test]
fn a_python_that_a_script_on_the_path_starts_is_a_reason_of_the_verdict() {
    let Some(python) = support::python() else { return };
    let Some(site) = engine(&quick("import sys", "import subprocess, sys")) else { return };
    site.write(
        "wrapper/python3",
        &format!("#!/bin/sh\nPYTHONPATH=/tmp:$PYTHONPATH exec {} \"$@\"\n", python.display()),
    );
    let wrapper = site.path().join("wrapper/python3");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("the script is this test's");
    let mut command = program::command(site.path(), &["run", "--json"]);
    command.env("PATH", [site.path().join("wrapper").as_os_str(), &program::path()].join(":".as_ref()));
    let record: serde_json::Value =
        serde_json::from_slice(&command.output().expect("the program starts").stdout).expect("a record");
    let sidecar = &record["phases"][1]["engine"]["sidecar"];
    let path = wrapper.to_str().expect("a path");
    assert_eq!(sidecar["files_sha256"][path], hash_bytes(&fs::read(&wrapper).expect("the script")), "{sidecar}");
    let reason =
        format!("infer: the sidecar's `command` starts `{path}`, a script or a program that another one replaced");
    let reasons = &record["validity"]["reasons"];
    assert!(reasons.as_array().is_some_and(|all| all.contains(&reason.into())), "{reasons}");
}

#[test]
fn a_program_that_starts_the_one_that_computes_is_a_reason_of_the_verdict() {
    if support::python().is_none() {
        return;
    }
    let own = OWN.replace("[python3", "[timeout, '600', python3");
    let site = Site::new(&own).with_vendor_file("engines/own.py", &quick("import sys", "import subprocess, sys"));
    let reasons = site.run_successfully(&[])["validity"]["reasons"].to_string();
    assert!(reasons.contains("timeout`, and another process computes"), "{reasons}");
}
