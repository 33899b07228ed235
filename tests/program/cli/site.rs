//! `flagperf site`.

use std::fs;

use crate::support::{program, results};

#[test]
fn results_become_a_site_which_is_replaced_and_takes_no_other_folder() {
    let checkout = results::checkout();
    let (first, _) = results::run(checkout.path(), &[]);
    let site = |arguments: &[&str]| {
        let output = program::flagperf(checkout.path(), &[&["site"], arguments].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().expect("it ended"), text(&output.stdout), text(&output.stderr))
    };
    let read = |path: &str| fs::read_to_string(checkout.path().join(path)).unwrap_or_default().replace("&#x2f;", "/");
    assert_eq!(site(&["result", "www"]), (0, "site  www/index.html, 1 result\n".to_owned(), String::new()));
    assert!(read("www/index.html").contains("href=\"case/tiny.html\""), "{}", read("www/index.html"));
    assert!(read("www/case/tiny.html").contains("tiny:interpreter") && read("www/vendor/cpu.html").contains("rten"));
    let pages = || fs::read_dir(checkout.path().join("www/result")).expect("a folder").count();
    assert_eq!(pages(), 1);

    let (second, _) = results::run(checkout.path(), &[]);
    results::change_record(&second, |record| record["finish_info"]["*p_inference_core(qps)"] = 1e9.into());
    let (code, text, _) = site(&["result", "www", "--language", "zh"]);
    assert_eq!((code, text.as_str()), (1, "site  www/index.html, 2 results\n1 result wrong and not ranked\n"));
    assert!(read("www/case/tiny.html").contains("class=\"wrong\"") && read("www/index.html").contains("lang=\"zh\""));
    assert_eq!(pages(), 2);
    fs::remove_dir_all(first).expect("it was there");
    assert_eq!(site(&["result", "www"]).0, 1);
    assert_eq!(pages(), 1, "the page of a result that is gone is gone");

    fs::create_dir(checkout.path().join("mine")).expect("a folder");
    fs::write(checkout.path().join("mine/notes"), "mine").expect("a file");
    for (arguments, expected) in [
        (&["result", "mine"][..], "`mine` contains other files and no site"),
        (&["configs", "www2"], "it contains no result"),
        (&["missing", "www2"], "`missing`: No such file or directory"),
    ] {
        let (code, _, message) = site(arguments);
        assert!(code == 2 && message.contains(expected), "{arguments:?}: {code} {message}");
    }
    assert_eq!(read("mine/notes"), "mine");
}
