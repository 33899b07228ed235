//! The fields of a JSON file, and other values for them, for tests that change each.

use serde_json::{Value, json};

/// Returns the places of all single values and empty lists, as JSON pointers. Of a list, the first and the last element stand for all.
pub fn leaves(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    add(value, String::new(), &mut found);
    found
}

fn add(value: &Value, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                let key = key.replace('~', "~0").replace('/', "~1");
                add(value, format!("{pointer}/{key}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let mut ends = vec![0, items.len() - 1];
            ends.dedup();
            ends.into_iter().for_each(|at| add(&items[at], format!("{pointer}/{at}"), found));
        }
        _ => found.push(pointer),
    }
}

/// Returns the name of the field at a pointer, as in a report, with `[]` for every element of a list.
pub fn field(pointer: &str) -> String {
    let parts = pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
    let names = parts.map(|part| if part.parse::<usize>().is_ok() { "[]".to_owned() } else { format!(".{part}") });
    names.collect::<String>().trim_start_matches('.').to_owned()
}

/// Returns other values for a field, of which one may fit its type.
pub fn others(value: &Value) -> Vec<Value> {
    const WORDS: [&str; 6] = ["failed", "valid", "met", "exact", "infer", "inference"];
    match value {
        Value::Bool(value) => vec![json!(!value)],
        Value::Number(number) => match number.as_u64() {
            Some(number) => vec![json!(number + 1)],
            None => vec![json!(number.as_f64().unwrap_or_default() * 1.5 + 1.0)],
        },
        Value::String(text) if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let first = if text.starts_with('0') { "1" } else { "0" };
            vec![json!(format!("{first}{}", &text[1..]))]
        }
        Value::String(text) => {
            let words = WORDS.iter().filter(|word| *word != text).map(|word| json!(word));
            std::iter::once(json!(format!("{text}x"))).chain(words).collect()
        }
        Value::Null => vec![json!("x"), json!(1), json!(1.5), json!(true), json!(["x"]), json!({"x": 1})],
        Value::Array(_) => vec![json!(["x"]), json!([1]), json!([{"x": 1}])],
        Value::Object(_) => vec![json!({"x": 1}), json!({"x": "x"})],
    }
}

/// Removes the field at a pointer. Returns `false` for a null, which means the same when it is missing.
pub fn remove(value: &mut Value, pointer: &str) -> bool {
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
    let last = last.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(parent).expect("a parent") {
        Value::Object(entries) => entries.remove(&last).is_some_and(|value| !value.is_null()),
        Value::Array(items) => {
            items.remove(last.parse().expect("an index"));
            true
        }
        _ => false,
    }
}
