//! Compiles the shim against the header that is installed: WiredTiger's method tables, not its symbols, are its ABI.
//!
//! `WIREDTIGER_DIR` names the folder of another build (`include/` and `lib/` below it) than the system's.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=csrc/shim.c");
    println!("cargo:rerun-if-env-changed=WIREDTIGER_DIR");
    let own = std::env::var_os("WIREDTIGER_DIR").map(PathBuf::from);
    let mut shim = cc::Build::new();
    shim.file("csrc/shim.c").warnings(true).extra_warnings(true);
    match &own {
        Some(dir) => {
            let headers = dir.join("include");
            refuse_without(&headers.join("wiredtiger.h"));
            shim.include(headers);
            let libraries = dir.join("lib");
            println!("cargo:rustc-link-search=native={}", libraries.display());
            println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libraries.display());
        }
        None => refuse_without(Path::new("/usr/include/wiredtiger.h")),
    }
    shim.compile("wiredtiger_shim");
    println!("cargo:rustc-link-lib=dylib=wiredtiger");
}

fn refuse_without(header: &Path) {
    println!("cargo:rerun-if-changed={}", header.display());
    if !header.exists() {
        eprintln!(
            "{} is not there. Install WiredTiger's headers (apt-get install -y libwiredtiger-dev), or name the folder \
             of another build in WIREDTIGER_DIR (with include/wiredtiger.h and lib/libwiredtiger.so below it)",
            header.display()
        );
        std::process::exit(1);
    }
}
