# What Ruby's dotenv, ActiveRecord, redis-rb and libpq make of a .env file: one fact a line.
require 'erb'
require 'yaml'
require 'dotenv'
require 'active_record'
require 'active_record/database_configurations'
require 'redis'
require 'pg'

def tcp(host, port) = "tcp:#{host.include?(':') && !host.start_with?('[') ? "[#{host}]" : host}:#{port}"
def directory(host, port) = host.start_with?('/') ? "unix:#{host}/.s.PGSQL.#{port}" : tcp(host, port)

values = Dotenv::Parser.call(File.open(ARGV[0], 'rb:bom|utf-8', &:read))
told = []
values.each do |name, value|
  case value[%r{\A[a-z0-9+]+(?=://)}]
  when 'mysql2', 'trilogy', 'mysql', 'postgres', 'postgresql', 'postgis'
    config = ActiveRecord::DatabaseConfigurations::ConnectionUrlResolver.new(value).to_hash
    mysql = value =~ /\A(mysql|trilogy)/
    # libmysqlclient takes the socket where the host is localhost or not there.
    place = if !mysql
              directory(config[:host], config[:port] || 5432)
            elsif [nil, 'localhost'].include?(config[:host])
              "unix:#{config[:socket] || 'default'}"
            else
              tcp(config[:host], config[:port] || 3306)
            end
    puts "#{name} endpoint=#{place}"
    config.except(:host, :port, :socket).each { |key, word| puts "#{name} #{key}=#{word}" }
    told << name
  when 'redis', 'unix'
    client = Redis.new(url: value)._client
    puts "#{name} endpoint=#{client.path ? "unix:#{client.path}" : tcp(client.host, client.port)}"
    puts "#{name} password=#{client.password} username=#{client.username} db=#{client.db}"
    told << name
  when 'redis+socket'
    nil
  end
end
own = File.join(File.dirname(ARGV[0]), 'config/database.yml')
if values.key?('DB_HOST') && File.exist?(own)
  values.each { |name, value| ENV[name] = value }
  config = YAML.load(ERB.new(File.read(own)).result, aliases: true)['production']
  puts "DB_HOST endpoint=#{directory(config['host'], config['port'] || 5432)}"
  config.except('host', 'port').each { |key, word| puts "DB_HOST #{key}=#{word}" }
  told << 'DB_HOST' << 'DB_PORT'
end
if values.key?('PGHOST')
  values.each { |name, value| ENV[name] = value }
  defaults = PG::Connection.conndefaults_hash
  puts "PGHOST endpoint=#{directory(defaults[:host], defaults[:port] || 5432)}"
  puts "PG user=#{defaults[:user]} database=#{defaults[:dbname]} password=#{defaults[:password]}"
  told << 'PGHOST' << 'PGPORT'
end
values.each { |name, value| puts "#{name}=#{value.inspect}" unless told.include?(name) }
