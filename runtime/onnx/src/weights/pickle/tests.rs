//! Tests of reading pickles.

use super::*;

fn reason(pickle: &[u8]) -> String {
    match read_state_dict(pickle) {
        Err(PickleError::Malformed(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_named_function_is_refused_within_nested_values() {
    let pickle = &b"\x80\x02}q\x00(X\x01\x00\x00\x00acos\nsystem\r\nq\x01)R(Ku."[..];
    assert_eq!(read_state_dict(pickle), Err(PickleError::Forbidden("os.system".to_owned())));
}

#[test]
fn values_that_double_or_nest_repeatedly_take_no_more_memory_than_their_instructions() {
    let doubling = [&b"\x80\x02X\x04\x00\x00\x00abcdq\x00"[..], &b"h\x00h\x00\x86q\x00".repeat(30), b"."].concat();
    let nesting = [&b"\x80\x02)"[..], &[0x85; 100_000], b"."].concat();
    for pickle in [doubling, nesting] {
        assert_eq!(reason(&pickle), "its pickle does not have the structure that PyTorch writes");
    }
}

#[test]
fn dicts_that_share_or_contain_themselves_are_refused_without_filling_memory() {
    // A dict that is its own value, and dicts each of which is twice in the next.
    let own = b"\x80\x02}q\x00X\x01\0\0\0ah\x00s.".to_vec();
    let level = b"q\x00}X\x01\0\0\0ah\x00sX\x01\0\0\0bh\x00s".repeat(40);
    let sharing = [&b"\x80\x02}"[..], &level, b"."].concat();
    for pickle in [own, sharing] {
        assert_eq!(reason(&pickle), "its pickle: its dicts have more than 1048576 tensors or 4194304 entries");
    }
}

#[test]
fn missing_or_endless_input_is_refused_without_filling_memory() {
    assert_eq!(reason(b"\x80\x02X\xff\xff\xff\xff."), "its pickle: unexpected end of file");
    let endless = |bytes| match read_state_dict(bytes) {
        Err(PickleError::Malformed(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let values: Box<dyn BufRead> = Box::new(io::BufReader::new(io::repeat(b'N')));
    assert_eq!(endless(values), "its pickle: it pushes more than 4194304 values");
    let name: Box<dyn BufRead> = Box::new(io::BufReader::new((&b"c"[..]).chain(io::repeat(b'a'))));
    assert_eq!(endless(name), "its pickle is larger than 67108864 bytes");
}

#[test]
fn instructions_that_pytorch_does_not_write_are_refused() {
    assert_eq!(reason(b"\x80\x02(d."), "its pickle: unsupported instruction 0x64 (PyTorch does not write it)");
    assert_eq!(reason(b"\x80\x02\x8a\xff."), "its pickle: unsupported integer of 255 bytes (at most 8)");
    for pickle in [b"\x80\x02h\x05.", &b"\x80\x02t."[..], b"\x80\x02a.", b"\x80\x02)(a."] {
        assert_eq!(reason(pickle), "its pickle: an instruction uses a value that does not exist");
    }
}

#[test]
fn a_state_dict_lists_its_tensors_and_leaves_out_other_values() {
    // What `torch.save(OrderedDict(a=Parameter(tensor of 2,3), n=7))` writes, without the memo.
    let storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x09tQ";
    let rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n(";
    let tensor =
        [&rebuild[..], storage, b"M\x03\x00K\x02K\x03\x86K\x03K\x01\x86\x89ccollections\nOrderedDict\n)RtR"].concat();
    let parameter = [&b"ctorch._utils\n_rebuild_parameter\n("[..], &tensor, b"\x88NtR"].concat();
    let head = b"\x80\x02ccollections\nOrderedDict\n)R(X\x01\0\0\0a";
    let pickle = [&head[..], &parameter, b"X\x01\0\0\0nK\x07u}X\x09\0\0\0_metadata)sb."].concat();
    let found = read_state_dict(&pickle[..]).unwrap();
    let expected = PickledTensor {
        storage: "FloatStorage".into(),
        key: "0".into(),
        stored: 9,
        offset: 3,
        shape: vec![2, 3],
        strides: vec![3, 1],
    };
    assert_eq!(found, HashMap::from([("a".to_owned(), expected)]));
}
