macro_rules! far {
    ($($name:ident $word:literal $says:literal)*) => {
        #[derive(Debug)]
        pub enum Far { $($name),* }
    };
}

far! { One "one" "a sentence" Two "two" "another sentence" }
