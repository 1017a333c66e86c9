use super::*;

#[test]
fn ambiguous_paths_are_refused() {
    for (path, error) in [
        ("", PathError::NotAbsolute),
        ("*", PathError::NotAbsolute),
        ("/a//b", PathError::EmptySegment),
        ("//a", PathError::EmptySegment),
        ("/a/../b", PathError::DotSegment),
        ("/a/..", PathError::DotSegment),
        ("/a/./b", PathError::DotSegment),
        ("/a/...", PathError::DotSegment),
        ("/a/%2e%2E/b", PathError::DotSegment),
        ("/a/.%2e/b", PathError::DotSegment),
        ("/a/..%20/b", PathError::DotSegment),
        ("/a/%20/b", PathError::DotSegment),
        ("/a/.%20./b", PathError::DotSegment),
        ("/a/..;x=1/b", PathError::DotSegment),
        ("/a/..%3bx=1/b", PathError::DotSegment),
        ("/a/..%253bx=1/b", PathError::DotSegment),
        ("/a/..%3fx/b", PathError::DotSegment),
        ("/a/..%23", PathError::DotSegment),
        ("/a/..%253f", PathError::DotSegment),
        ("/a/%ef%bc%8e%ef%bc%8e/b", PathError::DotSegment), // full-width
        ("/a/%e2%80%a5/b", PathError::DotSegment),          // two dot leader
        ("/a/;x=1/b", PathError::EmptySegment),
        ("/a/%3bx=1/b", PathError::EmptySegment),
        ("/a/%253bx=1/b", PathError::EmptySegment),
        ("/a/%ef%bc%9bx=1/b", PathError::EmptySegment), // full-width semicolon
        ("/a/%252e%252e/b", PathError::DotSegment),
        ("/a/%ef%bc%852e%2e/b", PathError::DotSegment), // full-width percent sign
        ("/a/b%2fc", PathError::Separator),
        ("/a/..%2f..", PathError::Separator),
        ("/a/b%5Cc", PathError::Separator),
        ("/a/b\\c", PathError::Separator),
        ("/a/%252F", PathError::Separator),
        ("/a/%252F%25zz", PathError::Separator),
        ("/a/b%ef%bc%8fc", PathError::Separator), // full-width slash
        ("/a/%00", PathError::Separator),
        ("/a/%0d%0a", PathError::Separator),
        ("/a/%c2%85", PathError::Separator), // a control character beyond ASCII
        ("/a/%", PathError::Encoding),
        ("/a/%g0", PathError::Encoding),
        ("/a/%c0%ae", PathError::NotUtf8),
        ("/a/%c0%ae%c0%ae/b", PathError::NotUtf8),
        ("/a/%25c0%25ae", PathError::NotUtf8),
        ("/a/caf%e9", PathError::NotUtf8), // Latin-1
    ] {
        assert_eq!(SafePath::parse(path), Err(error), "{path:?}");
    }
    for path in
        ["/", "/a/", "/a/..b", "/a/100%25", "/a/x.tar.gz", "/a/b;v=1", "/a/%2Ehidden", "/a/caf%C3%A9", "/a/a%20b"]
    {
        assert!(SafePath::parse(path).is_ok(), "{path:?}");
    }
}

#[test]
fn the_end_of_a_path_is_sent_as_it_came() {
    let sent = |path: &str, skip| SafePath::parse(path).unwrap().below(skip).as_sent();
    assert_eq!(sent("/addons/a/%61pi/%76%31/caf%C3%A9/", 2), "/%61pi/%76%31/caf%C3%A9/");
    assert_eq!(sent("/addons/a", 2), "");
    assert_eq!(sent("/addons/a/", 2), "/");
    assert_eq!(sent("/a.B/C", 0), "/a.B/C");
}

#[test]
fn a_pattern_is_a_path_that_requests_can_have() {
    for (text, written) in [
        ("/", "/"),
        ("/api/v1", "/api/v1"),
        ("/api/", "/api"),
        ("/tenants/{cluster}/x", "/tenants/{cluster}/x"),
        ("/a.b:c@d", "/a.b:c@d"),
    ] {
        assert_eq!(text.parse::<PathPattern>().unwrap().to_string(), written);
    }
    for text in
        ["", "api", "/a/../b", "/a/./b", "/a//b", "/a/...", "/a;v=1", "/%61", "/a?b", "/x{cluster}", "/{addon}", "/a b"]
    {
        assert!(text.parse::<PathPattern>().is_err(), "{text}");
    }
    for (service, method) in
        [("a/b", None), ("", None), ("a.B", Some("c/d")), ("a.B", Some("")), ("a.B", Some("{cluster}"))]
    {
        assert!(PathPattern::grpc(service, method).is_err(), "{service} {method:?}");
    }
}

#[test]
fn a_pattern_matches_whole_segments() {
    let matches = |pattern: &str, path: &str| {
        pattern.parse::<PathPattern>().unwrap().matches(SafePath::parse(path).unwrap().below(0))
    };
    assert!(matches("/api", "/api"));
    assert!(matches("/api", "/api/"));
    assert!(matches("/api", "/%61pi/x"));
    assert!(!matches("/api", "/apis"));
    assert!(!matches("/api", "/API"));
    assert!(matches("/", "/"));
    assert!(matches("/t/{cluster}", "/t/c1"));
    assert!(!matches("/t/{cluster}", "/t"));
    assert!(!matches("/t/{cluster}", "/t/"));
}

#[test]
fn a_path_has_so_many_segments() {
    assert!(SafePath::parse(&"/a".repeat(128)).is_ok());
    assert_eq!(SafePath::parse(&"/a".repeat(129)), Err(PathError::TooManySegments));
}

#[test]
fn a_grpc_method_is_exactly_one_path() {
    let service = PathPattern::grpc("a.v1.Push", None).unwrap();
    let method = PathPattern::grpc("a.v1.Push", Some("Do")).unwrap();
    let matches = |path: &str| {
        let path = SafePath::parse(path).unwrap();
        (service.matches(path.below(0)), method.matches(path.below(0)), method.is_alike(path.below(0)))
    };
    assert_eq!(matches("/a.v1.Push/Do"), (true, true, true));
    assert_eq!(matches("/a.v1.Push/Other"), (true, false, false));
    assert_eq!(matches("/a.v1.Push/Do/x"), (true, false, false));
    assert_eq!(matches("/a.v1.Push/do"), (true, false, true));
    assert_eq!(matches("/a.v1.Push/Do/"), (true, false, true), "some backends drop the last slash");
    assert_eq!(matches("/a.v1.push/Do"), (false, false, true));
}
