DROP TABLE member;
