"""What several folders of tests share: worlds, naive models, and parts that fail when told to."""
