//! The corpus that fuzzing has left, and each finding ever: what the fuzz targets do with it.

use std::path::Path;

#[path = "../../fuzz/src/sql_filter.rs"]
mod sql_filter;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut count = 0;
    for case in std::fs::read_dir(&corpus).expect("the corpus is part of the tree") {
        let path = case.expect("it can be listed").path();
        // Tells which case it was, should it panic.
        eprintln!("{}", path.display());
        run(&std::fs::read(path).expect("it can be read"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", corpus.display());
}

macro_rules! replayed {
    ($($target:ident),*) => {
        $(
            #[test]
            fn $target() {
                replay(stringify!($target), $target::run);
            }
        )*
    };
}

replayed!(sql_filter);
