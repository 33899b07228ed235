//! The header compiles in C and in C++.

use assert_cmd::Command;

use crate::support;

const HEADER: &str = "runtime/plugin/include/flagperf_plugin.h";

#[test]
fn the_header_compiles_in_c_and_in_cpp() {
    for (compiler, language, standards) in [("cc", "c", ["c11", "c17"]), ("c++", "c++", ["c++11", "c++20"])] {
        if !support::has_compiler(compiler) {
            continue;
        }
        for standard in standards {
            let mut command = Command::new(compiler);
            command.current_dir(support::root()).arg(format!("-std={standard}"));
            command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I", "runtime/plugin/include"]);
            command.args(["-x", language, HEADER]).assert().success();
        }
    }
}
